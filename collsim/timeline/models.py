"""Transformers and layouts: from a model's figures to the layer that a rank computes and exchanges, and its groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, UnknownNameError
from collsim.timeline.places import Place
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
    def read(cls, told: Any) -> Layout:
        """Return the layout of a text, or of a mapping.

        Raises
        ------
        InputError
            It is none.

        Examples
        --------
        >>> Layout.read("tp=8,pp=4,dp=2").ranks
        64
        """
        text = ",".join(f"{name}={size}" for name, size in told.items()) if isinstance(told, Mapping) else str(told)
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
        """Of one stage."""
        return self.tp * self.cp * self.dp

    def places(self, per_node: int) -> tuple[dict[str, Place], list[str]]:
        """Return where groups lie on nodes of *per_node* GPUs, by their names, and the name of the group of messages
        of each stage to the next: tensors vary fastest, then contexts, then data or experts, then stages.

        A stage that does not fill nodes, and that nodes do not hold several of, begins on a node of its own.

        >>> Layout(tp=4, pp=4).places(8)[1]
        ['pp', 'pp over nodes', 'pp', 'pp over nodes']
        """
        block, stage = self.tp * self.cp, self.stage_ranks
        told = {"tp": Place(), "cp": Place(self.tp), "ep": Place(block)}
        told["dp"] = Place(self.tp)  # gradients of all who hold the same parameters: of contexts as well
        nests = not (stage % per_node and per_node % stage)
        begins = [i * (stage if nests else -(-stage // per_node) * per_node) for i in range(self.pp)]
        if stage % per_node == 0 or self.pp * stage <= per_node:
            return {**told, "pp": Place(stage)}, ["pp"] * self.pp
        names = []
        for first, then in zip(begins, [*begins[1:], begins[0]], strict=True):
            names.append("pp" if first // per_node == then // per_node else "pp over nodes")
            told.setdefault(names[-1], Place(lists=tuple((first + i, then + i) for i in range(stage))))
        return told, names

    def astride(self, per_node: int) -> list[str]:
        """Return what of the layout neither fills nodes of *per_node* GPUs nor divides them, as in ``tp=2,dp=3``."""
        sizes = {"tp": self.tp, "tp,cp": self.tp * self.cp, "tp,cp,dp": self.stage_ranks}
        if self.ranks <= per_node:
            return []
        return [name for name, size in sizes.items() if size % per_node and per_node % size]


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


def check_divides(model: Transformer, layout: Layout, sequence: int) -> None:
    """Refuse a layout that does not divide what it spreads: heads, the feed-forward part, experts, tokens.

    Heads of keys and values may also be held several times, where *tp* is a multiple of them (Megatron-LM,
    megatron/core/transformer/transformer_config.py).

    Raises
    ------
    InputError
        All that does not divide, with the nearest that do.
    """
    tp, faults = layout.tp, Faults()

    def splits(count: int) -> bool:
        grouped = model.kv_heads % count == 0 or count % model.kv_heads == 0
        return model.heads % count == 0 and model.ffn % count == 0 and grouped

    def refuse(what: str, name: str, fits: Callable[[int], bool], most: int) -> None:
        at = getattr(layout, name)
        near = [next(filter(fits, range(at, 0, -1)), None), next(filter(fits, range(at, most + 1)), None)]
        told = " or ".join(f"{name}={count}" for count in near if count)
        faults.append(Fault(f"{what} over {name}={at}", "layout", f"give {told}" if told else f"leave {name} out"))

    if not splits(tp):
        kv = "" if model.kv_heads == model.heads else f", {model.kv_heads} of keys and values,"
        refuse(f"{model.heads} heads{kv} and {model.ffn} of the feed-forward part do not divide", "tp", splits, 1024)
    if layout.ep > 1 and (not model.experts or model.experts % layout.ep):
        count = max(model.experts, 1)
        refuse(f"{model.experts} experts do not divide", "ep", lambda n: count % n == 0, count)
    if sequence % layout.cp:
        refuse(f"{sequence} tokens do not divide", "cp", lambda n: sequence % n == 0, sequence)
    faults.raise_any()


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
        As of `check_divides`.
    """
    check_divides(model, layout, sequence)
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
