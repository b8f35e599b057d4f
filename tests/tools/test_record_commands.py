"""The recorder of commands keeps what they print, exit with and write, and tells two recordings apart."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = (
    "# a comment",
    "",
    "--version ;; run --op nothing",
    "python: print('held'); open('left.txt', 'w').write('written')",
)


@pytest.fixture
def recorder(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    module = importlib.import_module("record_commands")
    listed = tmp_path / "commands.txt"
    listed.write_text("\n".join(LINES), encoding="utf-8")
    monkeypatch.setattr(module, "COMMANDS", listed)
    return module


@pytest.fixture
def recordings(recorder, tmp_path):
    folders = tmp_path / "before", tmp_path / "after"
    for folder in folders:
        recorder.record(folder, ROOT, workers=2)
    return folders


def test_what_is_kept(recordings):
    version, statement = (path.read_text(encoding="utf-8") for path in sorted(recordings[0].iterdir()))
    assert version.startswith(f"$ {LINES[2]}\n--- exit code 0\n--- stdout\ncollsim, version ")
    assert "--- exit code 2\n--- stdout\n--- stderr\nerror: " in version
    assert statement == f"$ {LINES[3]}\n--- exit code 0\n--- stdout\nheld\n--- stderr\n--- left.txt\nwritten\n"


def test_equal_recordings(recorder, recordings, capsys):
    assert recorder.compare(*recordings) == 0
    assert capsys.readouterr().out.endswith("0 of 2 commands differ\n")


def test_a_planted_difference_is_shown(recorder, recordings, capsys):
    planted = recordings[1] / "001.txt"
    planted.write_text(planted.read_text(encoding="utf-8").replace("\nwritten", "\nrewritten"), encoding="utf-8")
    assert recorder.compare(*recordings) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"$ {LINES[3]}\n")
    assert "    -written\n    +rewritten\n1 of 2 commands differ\n" in told


def test_a_command_that_one_recording_lacks(recorder, recordings):
    (recordings[1] / "000.txt").unlink()
    assert recorder.compare(*recordings) == 1


def test_every_recorded_line_is_one_command(recorder, monkeypatch):
    monkeypatch.undo()
    lines = recorder.commands()
    assert len(lines) == len(set(lines)) > 100
