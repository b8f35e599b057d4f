"""A file that is not there is answered with the one beside it whose name is most like it, whatever reads it."""

import pytest

import collsim
from collsim.core.errors import InputError
from collsim.core.input_files import beside


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda file: collsim.sweep(file, jobs=1), "grid.yaml"),
        (lambda file: collsim.validate(file, "hgx_h100"), "all_reduce.log"),
        (lambda file: collsim.diagnose(file, "hgx_h100"), "all_reduce.log"),
        (collsim.simulate_timeline, "step.yaml"),
        (collsim.simulate_timeline, "rank0.json"),
        (collsim.simulate_serving, "serving.yaml"),
        (collsim.import_topology, "topo_m.txt"),
        (collsim.import_schedule, "ring.xml"),
        (lambda file: collsim.write_report(file, "report.html"), "run.json"),
    ],
)
def test_the_nearest_file_is_offered(tmp_path, monkeypatch, call, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("x")
    wrong = name.replace(".", "s.")
    with pytest.raises(InputError) as found:
        call(str(tmp_path / wrong))
    assert f'did you mean "{tmp_path / name}"?' in str(found.value)


def test_nothing_is_offered_where_nothing_is_like_it(tmp_path):
    assert beside(tmp_path / "a.log") == beside(tmp_path / "none" / "a.log") == beside("a\0b") == ""
    (tmp_path / "a.log").touch()
    assert beside(tmp_path / "a.log") == ""
