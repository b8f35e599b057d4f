"""Explanation: one run taken apart, what it chose and why, what its time is made of, and what would change it most.

Data flows one way: removals -> split, changes -> what_ifs -> account -> gathering; findings are what comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collsim.core.lazy_names import names_from

if TYPE_CHECKING:
    from collsim.explanation.account import explain
    from collsim.explanation.findings import Explanation

__all__ = ["Explanation", "explain"]

HOME = {"Explanation": "findings", "explain": "account"}

__getattr__ = names_from(__name__, HOME)
