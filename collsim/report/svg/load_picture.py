"""The load of links as SVG, for a page that has the colours: a mesh, a switched domain, or the tiers of a cluster.

How busy a link is, bytes carried over capacity times time, is told by one of ten shades, ``u0`` to ``u9``, and by
numbers; of machines too large to draw each tier is one line between two boxes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from collsim.core.units import format_bandwidth, format_bytes
from collsim.explanation.findings import Explanation, LinkUse, TierUse

__all__ = ["SHADES", "load_picture", "shade"]

WIDTH, MARGIN = 920, 36
SHADES = 10
MOST_MESH = 16
"""GPUs of a mesh whose links can be told apart."""
PER_ROW, BOX, HIGH, PITCH = 18, 42.0, 26.0, 38.0
STOREY = 92.0
LADDER = ("core", "spine", "leaf", "nic", "cpu", "gpu", "nvsw")
"""Kinds of parts from the top of a picture to its bottom."""
NAMES = {
    "gpu": "GPUs", "nvsw": "NVLink switches", "nic": "adapters", "leaf": "leaf switches", "spine": "spine switches",
    "core": "core switches", "cpu": "CPUs",
}  # fmt: skip
Point = tuple[float, float]


def shade(utilisation: float) -> str:
    """Return the class of the shade for a share.

    >>> shade(0.0), shade(0.55), shade(1.0)
    ('u0', 'u5', 'u9')
    """
    return f"u{min(int(utilisation * SHADES), SHADES - 1)}"


def load_picture(found: Explanation) -> str:
    """Return the picture of the machine of an explanation; empty if nothing is known of its links."""
    kinds = {_kind(use.src) for use in found.links} | {_kind(use.dst) for use in found.links}
    if found.links and kinds == {"gpu"} and len({use.src for use in found.links}) <= MOST_MESH:
        return _picture(found, *_mesh(found.links))
    if found.links and len(kinds) == 2 and "gpu" in kinds and "nic" not in kinds:
        return _picture(found, *_planes(found.links))
    return _picture(found, *_tiers(found.tiers)) if found.tiers else ""


def _picture(found: Explanation, body: Sequence[str], bottom: float) -> str:
    """Return a whole picture with its scale."""
    label = f"load of the links of {found.result.topology['name']}"
    scale = [
        f'<rect class="{shade(place / SHADES)} fill" x="{MARGIN + 34 * place}" y="{bottom + 18:.0f}" width="34" '
        'height="12"/>'
        for place in range(SHADES)
    ]
    scale += [
        f'<text class="soft" x="{MARGIN + 34 * place}" y="{bottom + 46:.0f}" text-anchor="middle">{place * 10}%</text>'
        for place in (0, 5, 10)
    ]
    told = "how busy: bytes carried over capacity times time"
    scale.append(f'<text class="soft" x="{MARGIN + 34 * SHADES + 24}" y="{bottom + 29:.0f}">{told}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 56:.0f}" role="img" '
        f'aria-label="{escape(label)}">\n' + "\n".join([*body, *scale]) + "\n</svg>\n"
    )


def _kind(name: str) -> str:
    """Return the kind of a part: its name less node and numbers."""
    return name.rpartition(".")[2].rstrip("0123456789/:-")


def _mesh(links: Sequence[LinkUse]) -> tuple[list[str], float]:
    """Return GPUs on a circle, with a line for each pair of links; the busier direction has the shade."""
    names = list(dict.fromkeys([use.src for use in links]))
    radius, centre = 190.0, (WIDTH / 2, 226.0)
    places = {}
    for i, name in enumerate(names):
        angle = 2 * math.pi * (i + 0.5) / len(names) - math.pi / 2
        places[name] = (centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle))
    busy = _both_ways(links)
    lines = [
        _line(places[a], places[b], share, 2.0 + min(count, 4), f"{a} and {b}: busiest direction {share:.0%}")
        for (a, b), (share, count) in sorted(busy.items(), key=lambda each: each[1])
    ]
    boxes = [_box(places[name], 64.0, name, None) for name in names]
    return [*lines, *boxes], centre[1] + radius + 24


def _both_ways(links: Sequence[LinkUse]) -> dict[tuple[str, str], tuple[float, int]]:
    """Return the busier direction of each pair of ends, and how many links it is."""
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for use in links:
        a, b = sorted((use.src, use.dst))
        found[a, b] = max(found.get((a, b), (0.0, 0)), (use.utilisation, use.count))
    return found


def _planes(links: Sequence[LinkUse]) -> tuple[list[str], float]:
    """Return switches above GPUs; a box has the shade of its busiest link, and the busiest GPU has its lines drawn."""
    names = list(dict.fromkeys([use.src for use in links] + [use.dst for use in links]))
    gpus = [name for name in names if _kind(name) == "gpu"]
    switches = [name for name in names if _kind(name) != "gpu"]
    top: dict[str, float] = {}
    for use in links:
        for name in (use.src, use.dst):
            top[name] = max(top.get(name, 0.0), use.utilisation)
    above, y = _rows(switches, 34.0)
    below, bottom = _rows(gpus, y + 150.0)
    places = {**above, **below}
    first = max(gpus, key=lambda name: top[name])
    drawn = {pair: each for pair, each in _both_ways(links).items() if first in pair or len(links) <= 160}
    ends = {name: (x, y + (HIGH / 2 if name in above else -HIGH / 2)) for name, (x, y) in places.items()}
    lines = [
        _line(ends[a], ends[b], share, 1.2 + 0.5 * min(count, 4), f"{a} and {b}: busiest direction {share:.0%}")
        for (a, b), (share, count) in sorted(drawn.items(), key=lambda each: each[1])
    ]
    boxes = [_box(places[name], BOX, name, top[name]) for name in names]
    note = [] if len(drawn) * 2 == len(links) else [
        f'<text class="soft" x="{MARGIN}" y="{bottom + 38:.0f}">only links of {escape(first)}, the busiest, are drawn; '
        "every box has the shade of its busiest link</text>"
    ]  # fmt: skip
    return [*lines, *boxes, *note], bottom + (44 if note else 20)


def _rows(names: Sequence[str], top: float) -> tuple[dict[str, Point], float]:
    """Place boxes in rows; return their middles and the y of the last row."""
    wide = min(len(names), PER_ROW)
    pitch = (WIDTH - 2 * MARGIN) / wide
    places = {
        name: (MARGIN + pitch * (i % wide + 0.5), top + PITCH * (i // wide)) for i, name in enumerate(names)
    }  # fmt: skip
    return places, top + PITCH * ((len(names) - 1) // wide)


def _line(a: Point, b: Point, share: float, width: float, told: str) -> str:
    return (
        f'<line class="{shade(share)} load" x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" '
        f'stroke-width="{width:.1f}"><title>{escape(told)}</title></line>'
    )


def _box(place: Point, width: float, name: str, share: float | None) -> str:
    """Return a box with a name; with a share it has its shade."""
    shown = name.rpartition(".")[2]
    shown = shown if width > BOX else shown.removeprefix("gpu").replace("nvsw", "sw")
    look = "box" if share is None else f"box {shade(share)} fill"
    dark = "" if share is None else f" on{shade(share)}"
    told = name if share is None else f"{name}: busiest link {share:.0%}"
    x, y = place
    return (
        f'<rect class="{look}" x="{x - width / 2:.1f}" y="{y - HIGH / 2:.1f}" width="{width:.1f}" height="{HIGH:g}" '
        f'rx="5"><title>{escape(told)}</title></rect><text class="name{dark}" x="{x:.1f}" y="{y + 4:.1f}" '
        f'text-anchor="middle">{escape(shown)}</text>'
    )


def _tiers(tiers: Sequence[TierUse]) -> tuple[list[str], float]:
    """Return a box for each kind of part and a line for each tier: as thick as it is rated, shaded as it is busy."""
    kinds = list(dict.fromkeys(kind for tier in tiers for kind in tier.name.split("->")))
    order = [kind for kind in LADDER if kind in kinds] + [kind for kind in kinds if kind not in LADDER]
    places = {kind: (WIDTH * 0.14, 34.0 + STOREY * place) for place, kind in enumerate(order)}
    hot = max(tiers, key=lambda tier: tier.busiest)
    body = [line for tier in tiers for line in _tier(tier, places, hot)]
    for kind in order:
        x, y = places[kind]
        body.append(
            f'<rect class="box" x="{x - 88:.1f}" y="{y - 16:.1f}" width="176" height="32" rx="6"/>'
            f'<text class="name" x="{x:.1f}" y="{y + 5:.1f}" text-anchor="middle">'
            f"{escape(NAMES.get(kind, kind))}</text>"
        )
    return body, 34.0 + STOREY * (len(order) - 1) + 30


def _tier(tier: TierUse, places: Mapping[str, Point], hot: TierUse) -> Iterator[str]:
    """Yield an arrow from one kind of part to another, and its figures beside it."""
    src, dst = tier.name.split("->")
    (x1, y1), y2 = places[src], places[dst][1]
    up = y2 < y1
    x = x1 + (-30 if up else 30)
    told = f"{tier.title}: busiest {tier.busiest:.0%} ({tier.link}), mean {tier.mean:.0%}"
    if src == dst:
        loop = f"M {x1 + 88} {y1 - 8} q 46 8 0 16"
        yield f'<path class="{shade(tier.busiest)} load" d="{loop}" stroke-width="7"/>'
        text_y = y1 + 4
    else:
        begin, end = (y1 - 16, y2 + 22) if up else (y1 + 16, y2 - 22)
        yield (
            f'<line class="{shade(tier.busiest)} load" x1="{x}" x2="{x}" y1="{begin}" y2="{end}" stroke-width="9">'
            f"<title>{escape(told)}</title></line>"
        )
        tip = -8 if up else 8
        yield f'<path class="{shade(tier.busiest)} fill" d="M {x - 11} {end} L {x + 11} {end} L {x} {end + tip} Z"/>'
        text_y = (y1 + y2) / 2 + (-7 if up else 15)
    mark = "hot" if tier is hot else "figures"
    figures = f"{'up' if up else 'down'}: busiest {tier.busiest:.0%}, mean {tier.mean:.0%} of {tier.links:,} links"
    more = f" of {format_bandwidth(tier.capacity_Bps)}; {format_bytes(tier.bytes)}"
    note = ", the busiest tier" if tier is hot else ""
    yield (f'<text class="{mark}" x="{WIDTH * 0.14 + 112:.0f}" y="{text_y:.1f}">{escape(figures + more + note)}</text>')
