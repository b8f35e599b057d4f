"""Files that are none: pipes to which nobody writes or that never end, folders, devices, other formats."""

import io
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from collsim.core import input_files

RUN = ("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M", "-q")
READERS = {
    "topology": lambda file: ("run", "--topo", file, "--op", "all_reduce", "--size", "1M", "-q"),
    "topology to check": lambda file: ("topo", "check", file),
    "topology to draw": lambda file: ("topo", "draw", file),
    "topology to compare": lambda file: ("compare", "hgx_h100", file, "--op", "all_reduce", "--size", "1M"),
    "profile": lambda file: (*RUN, "--profile", file),
    "configuration": lambda file: ("run", "--config", file),
    "matrix": lambda file: ("run", "--topo", "hgx_h100", "--op", "all_to_all_v", "--matrix", file, "-q"),
    "hosts": lambda file: (*RUN, "--placement", file),
    "racks": lambda file: (*RUN, "--nodes", "2", "--placement", f"slurm:{file}:a[0-1]"),
    "experts": lambda file: ("moe", "--topo", "hgx_h100", "--ep", "8", "--counts", file),
    "schedule": lambda file: ("schedule", "check", file),
    "log": lambda file: ("validate", file, "--topo", "hgx_h100"),
    "log to fit": lambda file: ("calibrate", file, "--topo", "hgx_h100"),
}
MORE_READERS = {
    "grid": lambda file: ("sweep", file),
    "serving": lambda file: ("serve", file),
    "step": lambda file: ("timeline", file, "--topo", "hgx_h100"),
    "step to compare": lambda file: ("compare", "hgx_h100", "dgx_a100", "--workload", file),
    "log to diagnose": lambda file: ("diagnose", file, "--topo", "hgx_h100"),
    "result": lambda file: ("report", file),
    "schedule to run": lambda file: ("schedule", "run", file, "--topo", "hgx_h100", "--size", "1M"),
    "schedule to compare": lambda file: ("schedule", "diff", file, file),
    "foreign schedule": lambda file: ("schedule", "import", file, "--size", "1M"),
    "foreign topology": lambda file: ("topo", "import", file),
    "profile to start from": lambda file: ("calibrate", "nothing.log", "--topo", "hgx_h100", "--start", file),
}
"""Those that are not asked about pipes and devices here."""
WRITERS = {
    "table": lambda file: (*RUN, "-o", file),
    "comparison": lambda file: ("compare", "hgx_h100", "dgx_a100", "--op", "all_reduce", "--size", "1M", "-o", file),
    "configuration": lambda file: (*RUN, "--save-config", file),
    "points": lambda file: ("sweep", "grid.yaml", "-o", file, "-q"),
    "experts": lambda file: ("moe", "--topo", "hgx_h100", "--ep", "8", "--tokens", "128", "-o", file),
    "picture of experts": lambda file: ("moe", "--topo", "hgx_h100", "--ep", "8", "--tokens", "128", "--svg", file),
    "explanation": lambda file: ("explain", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M", "-o", file),
    "choices for the library": lambda file: ("tune", "--topo", "hgx_h100", "--op", "all_reduce", "-o", file),
    "schedule": lambda file: (
        *("schedule", "export", "--topo", "hgx_h100", "--op", "all_reduce", "--algo", "ring", "--size", "1M"),
        *("-o", file),
    ),
}


@pytest.fixture
def pipe(tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "WAIT_S", 0.05)
    os.mkfifo(tmp_path / "in.yaml")
    return str(tmp_path / "in.yaml")


def refused(found, *texts):
    assert found.code == 2, (found.out, found.err)
    assert "defect" not in found.err
    for text in texts:
        assert text in found.err


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_to_which_nobody_writes(collsim, pipe, reader):
    refused(collsim(*READERS[reader](pipe)), "nobody has opened this pipe")


@pytest.mark.parametrize("reader", [*READERS, *MORE_READERS])
def test_a_folder(collsim, tmp_path, reader):
    folder = tmp_path / "in.yaml"
    folder.mkdir()
    found = collsim(*(READERS | MORE_READERS)[reader](str(folder)))
    refused(found, "directory")
    assert "Errno" not in found.err  # the system's words without its number and without the path again


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_to_write_to(collsim, tmp_path, writer, monkeypatch):
    """Or a file in a folder that is none: refused, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(
        "schema: collsim.sweep/1\nbase: {topo: hgx_h100, op: all_reduce}\ngrid: {size: [1M]}\n"
    )
    suffix = ".jsonl" if writer == "points" else ".json"
    (tmp_path / f"out{suffix}").mkdir()
    for file in (f"out{suffix}", f"grid.yaml/out{suffix}"):
        found = collsim(*WRITERS[writer](file))
        refused(found, file, "irectory")
        assert "Errno" not in found.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.yaml", f"out{suffix}"]
    assert not [*(tmp_path / f"out{suffix}").iterdir()]


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_may_not_be_read(collsim, tmp_path, reader, monkeypatch):
    file = tmp_path / "in.yaml"
    file.write_text("")

    opened = input_files.Path.open

    def denied(path, *how, **named):
        if path.name == file.name:
            raise PermissionError(13, "Permission denied")
        return opened(path, *how, **named)

    monkeypatch.setattr(input_files.Path, "open", denied)
    refused(collsim(*READERS[reader](str(file))), "ermission denied")


@pytest.mark.parametrize("reader", [name for name in READERS if not name.startswith("log")])
def test_a_device_that_never_ends(collsim, tmp_path, reader, monkeypatch):
    """Read up to the limit of the file, which is low here, and refused."""
    for module, name in (
        ("collsim.topology.files.reader", "MAX_FILE_BYTES"),
        ("collsim.library.costs.profile_files", "MAX_FILE_BYTES"),
        ("collsim.cli.config", "MAX_FILE_BYTES"),
        ("collsim.simulation.request.matrices", "MAX_FILE_BYTES"),
        ("collsim.simulation.request.placement", "MOST_FILE_BYTES"),
        ("collsim.core.slurm", "MOST_FILE_BYTES"),
        ("collsim.moe.gating", "MOST_FILE_BYTES"),
        ("collsim.schedule.packed_files", "MAX_FILE_BYTES"),
    ):
        monkeypatch.setattr(f"{module}.{name}", 2**16)
    link = tmp_path / "in.yaml"
    link.symlink_to("/dev/zero")
    refused(collsim(*READERS[reader](str(link))), "error: ")


@pytest.mark.parametrize("reader", ["log", "log to fit"])
def test_a_log_that_never_ends(collsim, tmp_path, reader, monkeypatch):
    refused(collsim(*READERS[reader]("/dev/zero")), "this is a device, which may never end")
    monkeypatch.setattr("collsim.calibration.logs.lines.MOST_LINES", 1000)
    file = tmp_path / "long.log"
    file.write_text("y\n" * 2000)
    found = collsim(*READERS[reader](str(file)))
    assert "reading stopped after line 1001: a log has at most" in found.err + found.out


def test_a_pipe_that_somebody_writes_to(tmp_path):
    os.mkfifo(tmp_path / "in")
    writer = threading.Thread(target=lambda: (tmp_path / "in").write_bytes(b"12345"))
    writer.start()
    assert input_files.read_input(tmp_path / "in", 3) == b"1234"
    writer.join()


def test_a_dash_is_stdin_and_any_other_name_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(input_files, "sys", SimpleNamespace(stdin=SimpleNamespace(buffer=io.BytesIO(b"54321"))))
    for name in ("+", "-x", "in"):
        (tmp_path / name).write_bytes(b"12345")
        assert input_files.read_input_or_stdin(name, 3) == b"1234"
        assert input_files.name_of_input(Path(name)) == name
    assert input_files.read_input_or_stdin("-", 3) == b"5432"
    assert input_files.name_of_input(Path("-")) == "stdin"


@pytest.mark.parametrize(
    "arguments",
    [
        (*RUN, "-o", "x.png"),
        (*RUN, "-o", "x.json", "--format", "csv"),
        (*RUN, "-o", "x.csv", "--format", "json"),
        (*RUN, "-o", "x.md", "--format", "nccl"),
        (*RUN, "--save-config", "x.csv"),
        ("compare", "hgx_h100", "hgx_b200", "--op", "all_reduce", "--size", "1M", "-o", "x.csv", "--format", "json"),
        ("moe", "--topo", "hgx_h100", "--ep", "8", "--svg", "x.png"),
        ("moe", "--topo", "hgx_h100", "--ep", "8", "-o", "x.csv", "--format", "json"),
        ("topo", "draw", "hgx_h100", "-o", "x.png"),
        ("schedule", "export", "--topo", "hgx_h100", "--op", "all_reduce", "--algo", "ring", "-o", "x.csv"),
        ("calibrate", "x.log", "--topo", "hgx_h100", "--plot", "x.png"),
        ("calibrate", "x.log", "--topo", "hgx_h100", "-o", "x.json"),
    ],
)
def test_a_name_of_another_format(collsim, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    refused(collsim(*arguments), "error: -")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reader", ["log", "log to diagnose", "log to fit", "step", "result"])
def test_a_name_that_is_too_long_for_a_file(collsim, reader):
    refused(collsim(*{**READERS, **MORE_READERS}[reader]("x" * 5000)), "cannot be read: File name too long")
