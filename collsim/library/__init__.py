"""What a communication library adds to the wiring: constants now; choices of algorithm and protocol later."""

from __future__ import annotations

from collsim.library.profile import Profile, load_profile, profile_names

__all__ = ["Profile", "load_profile", "profile_names"]
