"""Machine code that runs without Numba is kept for the arguments that it was made for, in whatever order these come."""

import os
import subprocess
import sys

import pytest

MODULE = """
from collsim.engine.decorators import compilers
part, entry = compilers({"_nrt": False})

@entry
def weighed(values, factor):
    found = 0.0
    for place in range(len(values)):
        found += values[place] * factor
    values[0] = found
"""
PROGRAM = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import small
for kind in sys.argv[2]:
    values = {
        "f": np.arange(5.0), "i": np.arange(5), "s": np.arange(10.0)[::2], "w": np.arange(5, dtype=np.int32),
    }[kind.lower()]
    small.weighed(values, 2 if kind.islower() else 2.5)
    print(kind, float(values[0]))
print("numba" in sys.modules)
"""
SUMS = {"f": 20.0, "i": 20.0, "s": 40.0, "w": 20.0, "F": 25.0, "I": 25.0, "S": 50.0, "W": 25.0}


@pytest.fixture
def called(tmp_path):
    (tmp_path / "small.py").write_text(MODULE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def call(kinds):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), kinds]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        *lines, numba = done.stdout.splitlines()
        assert lines == [f"{kind} {SUMS[kind]}" for kind in kinds]
        return numba == "True"

    return call


def test_code_is_kept_under_the_arguments_that_it_was_made_for(called):
    assert called("fiSfWsFiIwf")  # old kinds again after new ones
    assert not called("f")
    assert not called("iSWsFIw")
    assert not called("wIFsWSif")


def test_a_kind_that_is_new_goes_to_numba_beside_those_that_are_kept(called):
    assert called("fi")
    assert called("fsfif")
    assert not called("sif")
