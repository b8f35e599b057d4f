"""Transformers and layouts: from a model's figures to the layer that a rank computes and exchanges, and its groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, InputError, UnknownNameError
from collsim.timeline.ready_made import Layer

__all__ = ["Layout", "Transformer", "layer_of", "load_transformer"]

FILE = Path(__file__).parent / "models.yaml"
ELEMENT_BYTES = 2
"""BF16."""


@dataclass(frozen=True, slots=True)
class Transformer:
    """Transformer; without experts, *experts* is 0. *gated*: the feed-forward part has three products, else two."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    gated: bool = True
    experts: int = 0
    top_k: int = 1
    vocabulary: int = 0
    source: str = ""

    @property
    def kv(self) -> int:
        """Elements of keys, and of values, of a token in a layer."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def attention_parameters(self) -> int:
        """Of a layer: query, key, value, output."""
        return self.hidden * (2 * self.hidden + 2 * self.kv)

    @property
    def ffn_parameters(self) -> int:
        """Of one expert of a layer, or of its feed-forward part."""
        return self.hidden * self.ffn * (3 if self.gated else 2)

    @property
    def parameters(self) -> int:
        """Of all layers, without embeddings.

        >>> round(load_transformer("llama-3-70b").parameters / 1e9, 1)
        68.5
        """
        return self.layers * (self.attention_parameters + max(self.experts, 1) * self.ffn_parameters)

    def forward_flop(self, tokens: float, sequence: int) -> float:
        """Return floating-point operations of a layer: two a parameter and token, and causal attention."""
        active = self.attention_parameters + self.top_k * self.ffn_parameters
        return tokens * (2.0 * active + 2.0 * sequence * self.hidden)


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks by what they share: tensors, stages, data, contexts; experts are spread over ranks of data."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1

    @classmethod
    def read(cls, text: str) -> Layout:
        """Return the layout of a text.

        Raises
        ------
        InputError
            It is none.

        Examples
        --------
        >>> Layout.read("tp=8,pp=4,dp=2").ranks
        64
        """
        found: dict[str, int] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, _, number = part.partition("=")
            if (
                name not in {each.name for each in fields(cls)}
                or name in found
                or not number.isdigit()
                or int(number) < 1
            ):
                raise InputError(Fault(f'"{part}" in "{text}"', "layout", "such as tp=8,pp=4,dp=16,ep=8,cp=1"))
            found[name] = int(number)
        layout = cls(**found)
        if layout.dp % layout.ep:
            raise InputError(
                Fault(f"ep={layout.ep} does not divide dp={layout.dp}", "layout", "spread experts over dp")
            )
        return layout

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def stage_ranks(self) -> int:
        """Of one stage; two of them at least, as messages go from stage to stage."""
        return self.tp * self.cp * max(self.dp, 2 if self.pp > 1 else 1)

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return what collectives are told of their place, by the name of their group: tensors vary fastest, then
        contexts, then data or experts; one stage stands for all.
        """
        inner = f"tp={self.tp},cp={self.cp}"
        block = self.tp * self.cp
        told: dict[str, dict[str, Any]] = {"tp": {"ranks": self.tp}}
        for name, count in (("cp", 1), ("dp", self.dp), ("ep", self.ep), ("pp", 2)):
            dims = inner if name == "cp" else f"{inner},{name}={count}"
            told[name] = {"ranks": block * count, "groups": dims, "over": name}
        told["dp"]["over"] = "cp,dp" if self.cp > 1 else "dp"  # gradients of all who hold the same parameters
        return told


@cache
def _table() -> dict[str, dict[str, Any]]:
    import yaml

    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8"))["models"])


def load_transformer(told: str | Mapping[str, Any]) -> Transformer:
    """Return a preset by its name, or a transformer of figures.

    Raises
    ------
    InputError
        No such preset, or figures that are missing or none.
    """
    if isinstance(told, str):
        if told not in _table():
            raise UnknownNameError("model", told, _table(), "model")
        return Transformer(**_table()[told])
    if not isinstance(told, Mapping):
        raise InputError(Fault(f"{told!r} is no model", "model", "give a preset by its name, or figures"))
    known = {each.name for each in fields(Transformer)}
    needed = ("layers", "hidden", "heads", "kv_heads", "ffn")
    wrong = [key for key in told if key not in known] + [key for key in needed if key not in told]
    numbers = [key for key in told if key in known - {"gated", "source"}]
    wrong += [key for key in numbers if type(told[key]) is not int or told[key] < (key != "experts")]
    wrong += [key for key in ("gated",) if not isinstance(told.get(key, False), bool)]
    if wrong:
        raise InputError(
            Fault(f"figures of a model: {', '.join(map(str, wrong))}", "model", f"give {', '.join(needed)}")
        )
    return Transformer(**told)


def layer_of(model: Transformer, layout: Layout, *, sequence: int, micro_batch: int, flops: float) -> Layer:
    """Return the layer that one rank computes for a micro-batch.

    Parameters
    ----------
    sequence, micro_batch : int
        Tokens of a sequence, and sequences of a micro-batch.
    flops : float
        Floating-point operations a second that products reach. Backward takes twice as many as forward.

    Raises
    ------
    InputError
        Experts do not divide.
    """
    if layout.ep > 1 and (not model.experts or model.experts % layout.ep):
        raise InputError(Fault(f"{model.experts} experts over ep={layout.ep}", "layout", "give ep that divides them"))
    tokens = sequence * micro_batch / layout.cp
    forward_s = model.forward_flop(tokens, sequence) / layout.tp / flops
    experts = max(model.experts, 1) // layout.ep
    held = model.attention_parameters + experts * model.ffn_parameters
    activation_bytes = int(tokens * model.hidden) * ELEMENT_BYTES
    return Layer(
        forward_s=forward_s,
        backward_s=2 * forward_s,
        activation_bytes=activation_bytes,
        gradient_bytes=held // layout.tp * ELEMENT_BYTES,
        context_bytes=int(2 * model.kv // layout.tp * sequence * micro_batch) * ELEMENT_BYTES if layout.cp > 1 else 0,
        exchange_bytes=activation_bytes * model.top_k if layout.ep > 1 else 0,
    )
