"""The command line in the process of the tests."""

from ..cli.conftest import collsim

__all__ = ["collsim"]
