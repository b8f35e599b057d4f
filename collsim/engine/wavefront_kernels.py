"""The compiled loops of the wavefront; `collsim.engine.wavefront` says what they do, and does the same for short ones.

Rows have one place more than the ring: the first is a copy of the last, so that the place before is always there and
loops have no branch for it. They are here alone, because numba's cache watches one file at a time.
Imports NumPy, Numba.
"""

from __future__ import annotations

from collsim.engine.decorators import compilers

# As in the other files of kernels: the cache of numba watches no other file (a test compares them)
OPTIONS = {"error_model": "numpy", "nogil": True, "no_rewrites": True, "_nrt": False}
_part, _entry = compilers(OPTIONS)


@_part
def _step(finish, spent, finished, used, wait, took, late):
    """Fill *finished* and *used* from the row before; *late* is of the place before."""
    n = len(wait)
    finish[0], spent[0] = finish[n], spent[n]
    for p in range(n):
        came, here = finish[p] + late[p], finish[p + 1]
        later = came > here
        finished[p + 1] = (came if later else here) + took[p]
        used[p + 1] = (spent[p] + late[p] if later else spent[p + 1]) + wait[p]


@_entry
def uniform(finish, spent, spare_finish, spare_spent, wait, took, late, steps):
    """Take an even number of steps with chunks of one size; *finish* and *spent* are changed."""
    for _ in range(steps // 2):
        _step(finish, spent, spare_finish, spare_spent, wait, took, late)
        _step(spare_finish, spare_spent, finish, spent, wait, took, late)


@_part
def _bare_step(finish, finished, took):
    """Fill *finished* from the row before where nothing waits."""
    n = len(took)
    finish[0] = finish[n]
    for p in range(n):
        finished[p + 1] = max(finish[p], finish[p + 1]) + took[p]


@_entry
def bare(finish, spare_finish, took, steps):
    """Take an even number of steps with chunks of one size and without any latency; *finish* is changed."""
    for _ in range(steps // 2):
        _bare_step(finish, spare_finish, took)
        _bare_step(spare_finish, finish, took)


@_part
def _mixed_step(before, after, wait, took, late, kinds, start):
    """Fill the rows of *after* from those of *before*: sent, arrived, latency until sent."""
    n = wait.shape[1]
    sent, arrived, spent = before[0], before[1], before[2]
    sent[0], arrived[0], spent[0] = sent[n], arrived[n], spent[n]
    for p in range(n):
        k = kinds[start + p]
        later = arrived[p] > sent[p + 1]
        after[0, p + 1] = (arrived[p] if later else sent[p + 1]) + took[k, p]
        after[1, p + 1] = after[0, p + 1] + late[k, p]
        after[2, p + 1] = (spent[p] + (arrived[p] - sent[p]) if later else spent[p + 1]) + wait[k, p]


@_entry
def mixed(rows, spare, wait, took, late, kinds, distances):
    """Take a step for each distance with chunks of several kinds, *kinds* twice in a row; *rows* is changed."""
    n = wait.shape[1]
    for i in range(0, len(distances) - 1, 2):
        _mixed_step(rows, spare, wait, took, late, kinds, n - distances[i] % n)
        _mixed_step(spare, rows, wait, took, late, kinds, n - distances[i + 1] % n)
