"""A communication library beside the wiring: constants, and the choice of algorithm and protocol.

Public names are imported on first use: who needs a profile does not pay for the choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collsim.core.lazy_names import names_from

if TYPE_CHECKING:
    from collsim.library.calls import Call, Candidate, Choice, PointToPoint
    from collsim.library.choice import choose
    from collsim.library.costs.channel_costs import Protocol
    from collsim.library.costs.profile import Profile, Scatter, band_of
    from collsim.library.costs.profile_files import (
        load_profile,
        profile_for,
        profile_names,
        with_copies,
        with_kernels,
        with_symmetric,
    )
    from collsim.library.environment import Environment, read_environment
    from collsim.library.library import DEFAULT_LIBRARY, Library, load_library
    from collsim.library.system import Graph, System, system_of

__all__ = [
    "DEFAULT_LIBRARY",
    "Call",
    "Candidate",
    "Choice",
    "Environment",
    "Graph",
    "Library",
    "PointToPoint",
    "Profile",
    "Protocol",
    "Scatter",
    "System",
    "band_of",
    "choose",
    "load_library",
    "load_profile",
    "profile_for",
    "profile_names",
    "read_environment",
    "system_of",
    "with_copies",
    "with_kernels",
    "with_symmetric",
]

HOME = {
    "calls": ("Call", "Candidate", "Choice", "PointToPoint"),
    "choice": ("choose",),
    "environment": ("Environment", "read_environment"),
    "costs.channel_costs": ("Protocol",),
    "costs.profile": ("Profile", "Scatter", "band_of"),
    "costs.profile_files": (
        "load_profile",
        "profile_for",
        "profile_names",
        "with_copies",
        "with_kernels",
        "with_symmetric",
    ),
    "system": ("Graph", "System", "system_of"),
    "library": ("DEFAULT_LIBRARY", "Library", "load_library"),
}

__getattr__ = names_from(__name__, {name: module for module, names in HOME.items() for name in names})
