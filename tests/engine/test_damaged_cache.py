"""Compiled kernels whose files are damaged, or cannot be written: compiled again, or run without a cache."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
import numpy as np
sys.path.insert(0, sys.argv[1])
import small
print("sum", small.total(np.arange(5.0)))
"""
MODULE = """
from collsim.engine.decorators import compilers
part, entry = compilers({})

@entry
def total(values):
    found = 0.0
    for value in values:
        found += value
    return found
"""


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "small.py").write_text(MODULE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def call():
        command = [sys.executable, "-c", PROGRAM, str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "sum 10.0" in done.stdout
        return done.stdout

    return call


def _files(tmp_path, suffix):
    return list((tmp_path / "cache").rglob(f"small.total*{suffix}"))


def test_damaged_files_are_compiled_again(run, tmp_path):
    run()
    for suffix in (".nbi", ".nbc"):
        for damage in (lambda old: b"", lambda old: old[: len(old) // 2], lambda old: b"garbage" * 99):
            files = _files(tmp_path, suffix)
            assert files
            for path in files:
                path.write_bytes(damage(path.read_bytes()))
            assert "compiling total" in run()
    assert "compiling total" not in run()


def test_a_cache_that_cannot_be_written(run, tmp_path, monkeypatch):
    """A folder in the place of the index: no file can take it, as on a full disk."""
    run()
    for path in _files(tmp_path, ".nbi"):
        path.unlink()
        path.mkdir()
    assert "compiling total" in run()


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_flipped_bit_is_found(run, tmp_path, suffix):
    """Anywhere: in the machine code it would load as ever."""
    run()
    for place in (0.0, 0.3, 0.62, 0.999):
        for path in _files(tmp_path, suffix):
            content = bytearray(path.read_bytes())
            content[int(place * len(content))] ^= 1
            path.write_bytes(content)
        assert "compiling total" in run()
    assert "compiling total" not in run()


def test_files_without_a_digest_are_compiled_again(run, tmp_path):
    """As Numba itself writes them."""
    run()
    for path in _files(tmp_path, ".nbc"):
        path.write_bytes(path.read_bytes()[32:])
    assert "compiling total" in run()


def test_a_file_that_may_not_be_read(run, tmp_path):
    """A folder in the place of the machine code: it cannot be read, as another user's file."""
    run()
    for path in _files(tmp_path, ".nbc"):
        path.unlink()
        path.mkdir()
    assert "compiling total" in run()
