"""How much memory a call takes: a guard against runaway work that, unlike a clock, does not depend on the machine."""

import tracemalloc


def peak_bytes(call):
    """Return the result of *call* and the most memory that Python and NumPy held for it at once."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
