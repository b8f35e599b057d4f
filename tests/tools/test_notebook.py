"""The notebook: its cells run one after the other, here and in Jupyter, and show what it holds."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("run_notebook", ROOT / "tools/run_notebook.py")
run_notebook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_notebook)
NOTEBOOK = ROOT / "examples/planning.ipynb"


@pytest.fixture
def notebook(monkeypatch):
    monkeypatch.chdir(ROOT)
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def cells_of(document):
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def test_cells_show_what_the_notebook_holds(notebook):
    shown = run_notebook.carried_out(notebook)
    for cell, outputs in zip(cells_of(notebook), shown, strict=True):
        assert run_notebook.texts_of(outputs) == run_notebook.texts_of(cell["outputs"])
    assert any("image/svg+xml" in each.get("data", {}) for outputs in shown for each in outputs)


def test_what_a_cell_shows():
    sources = ["a = 2\n", "print(a)\n", "a + 1"], "b = a"
    cells = [{"cell_type": "code", "source": source} for source in sources]
    first, second = run_notebook.carried_out({"cells": cells})
    assert run_notebook.texts_of(first) == ["2\n", "3"]
    assert second == []
    with pytest.raises(NameError):
        run_notebook.carried_out({"cells": [{"cell_type": "code", "source": "unknown"}]})


@pytest.mark.deep
@pytest.mark.filterwarnings("default")
def test_jupyter_runs_it(notebook):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    document = nbformat.reads(json.dumps(notebook), as_version=4)
    nbclient.NotebookClient(document, timeout=600, kernel_name="python3").execute()
    assert len(cells_of(document)) == 7
    assert not any(each["output_type"] == "error" for cell in cells_of(document) for each in cell["outputs"])
