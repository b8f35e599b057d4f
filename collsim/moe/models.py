"""Models with experts, as far as they decide the traffic: number, choices of a token, width."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, UnknownNameError, did_you_mean

__all__ = ["DTYPES", "Model", "load_model", "model_names"]

FILE = Path(__file__).parent / "models.yaml"
DTYPES = {"fp8": 1.0, "bf16": 2.0, "nvfp4": 0.5}
"""Bytes of one element of a token; fp8 and nvfp4 come with scales beside it."""
LEAST = {"experts": 1, "top_k": 1, "hidden": 1, "layers": 1, "groups": 1, "shared_experts": 0, "group_limit": 0}
MOST = 1 << 20
"""Of any figure of a model, so that bytes fit in 64 bits."""
SCALES = {"fp8": (128, 4), "nvfp4": (16, 1)}
"""Elements that share a scale, and its bytes: DeepEP sends one float32 for 128 elements in FP8 (README, per-token
quantisation); NVFP4 has one FP8 scale for 16 (NVIDIA, data types of Blackwell)."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model with experts.

    Attributes
    ----------
    experts, top_k : int
        Routed experts of a layer, and how many of them each token takes.
    hidden : int
        Elements of a token.
    layers : int
        How many layers have experts: each dispatches and combines once per step.
    shared_experts : int
        Experts that every token takes; they are computed where the token is, so they move nothing.
    groups, group_limit : int
        A token takes experts of at most *group_limit* of so many equal groups; 0: of any.
    dispatch, combine : {"fp8", "bf16", "nvfp4"}
    """

    name: str
    experts: int
    top_k: int
    hidden: int
    layers: int = 1
    shared_experts: int = 0
    groups: int = 1
    group_limit: int = 0
    dispatch: str = "fp8"
    combine: str = "bf16"
    kind: str = "user"
    source: str = ""

    def token_bytes(self, op: str) -> int:
        """Return the payload of one token in "dispatch" or "combine", scales included.

        >>> load_model("deepseek-v3").token_bytes("dispatch")
        7392
        """
        dtype = self.dispatch if op == "dispatch" else self.combine
        shared, each_bytes = SCALES.get(dtype, (1, 0))
        return ceil(DTYPES[dtype] * self.hidden) + each_bytes * -(-self.hidden // shared)

    @property
    def limited(self) -> bool:
        """True if a token takes experts of a limited number of groups."""
        return 0 < self.group_limit < self.groups


@cache
def _presets() -> dict[str, dict[str, Any]]:
    import yaml

    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8"))["models"])


def model_names() -> list[str]:
    """Return the names of the models that come with collsim."""
    return sorted(_presets())


def load_model(name: str | Model | None = None, **changes: Any) -> Model:
    """Return a model by name, with some figures changed; without a name all of experts, top_k and hidden are needed.

    Parameters
    ----------
    name : str or Model, optional
        Such as ``deepseek-v3``.
    **changes
        Fields of `Model`; None leaves a figure as it is.

    Raises
    ------
    InputError
        An unknown name, or figures that do not fit together; every fault at once.
    """
    changes = {key: value for key, value in changes.items() if value is not None}
    known = {field.name for field in fields(Model)}
    if unknown := sorted(set(changes) - (known - {"name", "kind", "source"})):
        hint = f"a model has {', '.join(sorted(known - {'name', 'kind', 'source'}))}"
        raise InputError(*(Fault("is no figure of a model", each, hint) for each in unknown))
    if isinstance(name, Model):
        return _checked(replace(name, **changes))
    if name is None:
        needed = ("experts", "top_k", "hidden")
        if missing := [each for each in needed if each not in changes]:
            hint = f"give it, or name a model: {', '.join(model_names())}"
            faults = Faults()
            faults += [Fault("not given, and no model is named", each, hint) for each in missing]
            faults.attempt(
                _checked, Model("custom", **{"experts": MOST, "top_k": 1, "hidden": 1, **changes, "groups": 1})
            )
            faults.raise_any()
        return _checked(Model("custom", **changes))
    key = name.strip().lower()
    if key not in _presets():
        raise UnknownNameError("model", name, model_names(), "model")
    model = Model(key, **{field: value for field, value in _presets()[key].items() if field in known})
    return _checked(replace(model, kind="user", **changes) if changes else model)


def _checked(model: Model) -> Model:
    """Return *model*; raise what does not fit together."""
    faults = []
    for name, least in LEAST.items():
        value = getattr(model, name)
        if not isinstance(value, int) or isinstance(value, bool):
            faults.append(Fault(f"{value!r} is not a whole number", name, f"give {least} or more"))
        elif not least <= value <= MOST:
            wrong = f"{value} is less than {least}" if value < least else f"{value} is more than {MOST}"
            faults.append(Fault(wrong, name, f"give {least} or more" if value < least else f"give at most {MOST}"))
    if any(not isinstance(getattr(model, name), int) for name in LEAST):
        raise InputError(*faults)  # what follows counts
    faults += [
        Fault(
            f'"{told}" is no data type of tokens',
            name,
            f"{did_you_mean(str(told), [*DTYPES])}choose fp8, bf16 or nvfp4",
        )
        for name in ("dispatch", "combine")
        if (told := getattr(model, name)) not in DTYPES
    ]
    if model.top_k > model.experts >= 1:
        what = f"each token takes {model.top_k} experts, but there are {model.experts}"
        faults.append(Fault(what, "top_k", f"give at most {model.experts}"))
    if model.groups >= 1 and model.experts >= 1 and model.experts % model.groups:
        fitting = max(g for g in range(1, min(model.groups, model.experts) + 1) if model.experts % g == 0)
        what = f"{model.experts} experts do not make {model.groups} equal groups"
        known = f"give a divisor of {model.experts}, such as {fitting}" if fitting > 1 else "give 1, which is no groups"
        faults.append(Fault(what, "groups", known))
    elif not faults and model.limited and model.top_k > model.group_limit * (model.experts // model.groups):
        room = model.group_limit * (model.experts // model.groups)
        what = f"{model.group_limit} groups have {room} experts, too few for the {model.top_k} of each token"
        faults.append(Fault(what, "group_limit", f"give at least {-(-model.top_k * model.groups // model.experts)}"))
    if faults:
        raise InputError(*faults)
    return model
