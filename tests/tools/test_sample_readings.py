"""The comparison of imports with the notes of a collection: alike, different, untold and refused are told apart."""

import csv
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/imports"
spec = importlib.util.spec_from_file_location("sample_readings", ROOT / "tools/sample_readings.py")
sample_readings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sample_readings)


@pytest.mark.parametrize(
    ("file", "sentence", "words"),
    [
        ("topo_m.txt", "8 GPUs NV18 all pairs; NUMA 0/1", {"files read": 1, "counts alike": 2}),
        ("topo_m.txt", "8 GPUs NV12 all pairs", {"files read": 1, "counts alike": 1, "counts that differ": 1}),
        ("nccl_topo.xml", "8 GPUs, 12 NVLinks each to 6 switches; 8 nets of 200000",
         {"files read": 1, "counts alike": 5}),
        ("nccl_topo.xml", "8 GPUs; 9 nets of 400000", {"files read": 1, "counts alike": 1, "counts that differ": 2}),
        ("bridged_cards.txt", "4 GPUs: NV12 0-1 and 2-3", {"files read": 1, "counts alike": 2}),
        ("bridged_cards.txt", "4 GPUs: 0-1 NV12, 2-3 NV6",
         {"files read": 1, "counts alike": 1, "counts that differ": 1}),
        ("topology.conf", "12 hosts", {"files read": 1, "counts alike": 1}),
        ("topo_m.txt", "3 dimensions", {"files read": 1, "counts that are not told": 1}),
        ("../planning.ipynb", "1 GPU", {"files refused": 1}),
    ],
)  # fmt: skip
def test_what_a_sentence_tells_is_compared(tmp_path, file, sentence, words):
    folder = tmp_path / "kind"
    folder.mkdir()
    (folder / "sample").write_bytes((EXAMPLES / file).read_bytes())
    with (folder / "INDEX.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("file", "expected_reading"), ("sample", sentence)])
    assert Counter(word for word, _ in sample_readings.compare(folder / "INDEX.csv")) == words
