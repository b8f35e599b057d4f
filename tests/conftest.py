"""Settings of all tests: none fails because the machine is slow or busy."""

import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


@pytest.fixture(autouse=True)
def interruptible():
    """Keep what an interruption does: a command that was interrupted leaves its process deaf to the next one."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
