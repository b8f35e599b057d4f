"""Settings of all tests: none fails because the machine is slow or busy."""

import gc
import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


def pytest_collection_finish():
    """Leave thousands of collected tests to the end of the process: the garbage collector need not look at them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def interruptible():
    """Let interruptions be heard: an interrupted command leaves its process deaf, as shells do in background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
