"""A topology as a picture: GPUs, switch planes and links with their rates, as one SVG for light and dark pages.

Nodes stand as `layouts` has them. Where a line for each link would make a carpet, one GPU's links are drawn for all.
Line width grows with the number of parallel links; colour tells the rates apart; every rate stands in the legend. What
has failed is drawn where it was, in dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

from collsim.core.errors import Fault, InputError
from collsim.core.units import format_bandwidth, format_count
from collsim.report.cluster import cluster_svg
from collsim.report.svg.layouts import MARGIN, WIDTH, Point, layout_of
from collsim.report.topology import format_range
from collsim.topology import Damage, Topology, Wiring, describe

__all__ = ["topology_svg"]

MOST_NODES, MOST_EDGES = 1_024, 10_000
"""Nodes of a drawing, and pairs of nodes between which it has a line (chosen): more is no picture, and takes long."""
MOST_LINES = 160
"""Above this many links a switched domain shows the links of one GPU for all."""
BOX_HEIGHT = 30.0
ROOMY = 44.0
"""Narrower boxes show only the number of a node."""
STYLE = """
  svg { background: #ffffff; font-family: system-ui, sans-serif; }
  text { fill: #1c2430; } .soft { fill: #5b6675; } .box { fill: #e8eef7; stroke: #3d5a80; }
  .switch { fill: #fdf0e0; stroke: #b8691c; } .faded { opacity: 0.16; }
  .r0 { stroke: #2f6db3; fill: #2f6db3; } .r1 { stroke: #c2571a; fill: #c2571a; }
  .r2 { stroke: #2d8659; fill: #2d8659; } .r3 { stroke: #8a4fb0; fill: #8a4fb0; }
  .r4 { stroke: #64707d; fill: #64707d; }
  .lost { stroke: #c4322b; stroke-dasharray: 3 7; } .weak { stroke: #c98a00; stroke-dasharray: 12 6; }
  .gone { fill: none; stroke: #c4322b; stroke-dasharray: 4 4; }
  path { fill: none !important; stroke-linecap: round; }
  .tag { fill: #ffffff; stroke: none; } .tagtext { font-size: 11px; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14181e; } text { fill: #e4e9f0; } .soft { fill: #9aa6b5; } .tag { fill: #14181e; }
    .box { fill: #223046; stroke: #8fb4e3; } .switch { fill: #3a2a17; stroke: #e6a75a; }
    .r0 { stroke: #74aef0; fill: #74aef0; } .r1 { stroke: #f09a5e; fill: #f09a5e; }
    .r2 { stroke: #6fcf9c; fill: #6fcf9c; } .r3 { stroke: #c79ae6; fill: #c79ae6; }
    .r4 { stroke: #a7b2bf; fill: #a7b2bf; }
  }
"""


@dataclass(frozen=True, slots=True)
class Edge:
    """The wiring between two nodes: *count* parallel links of *rate_Bps* each per direction, *harm* if any."""

    a: int
    b: int
    count: int
    rate_Bps: float
    harm: str = ""


def topology_svg(topology: Topology) -> str:
    """Return *topology* as an SVG document.

    Raises
    ------
    InputError
        There are too many nodes or links to see any.
    """
    if topology.cluster is not None:
        return cluster_svg(topology, STYLE)
    damage = topology.damage
    whole = damage.healthy if damage else topology
    wiring = whole.wiring
    _refuse_crowd(wiring)
    edges = _edges(wiring, _harms(damage) if damage else {})
    rates = sorted({round(edge.rate_Bps) for edge in edges}, reverse=True)
    switched = wiring.coordinates.kind == "switched"
    places, size, bottom = layout_of(wiring)
    crowded = switched and len(edges) > MOST_LINES
    drawn = [edge for edge in edges if not crowded or edge.a == 0 or edge.harm]
    gone = set(damage.nodes.tolist()) if damage else set()
    body = [*_lines(drawn, places, rates, switched=switched)]
    body += [_node(wiring, node, places[node], size, gone=node in gone) for node in range(wiring.n_nodes)]
    body += _captions(wiring, places) if switched else []
    legend = _legend(topology, edges, rates, bottom, crowded=crowded)
    height = bottom + 30 + 22 * (len(rates) + 1 + crowded + bool(damage))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img" '
        f'aria-label="{escape(topology.title, quote=True)}">\n<style>{STYLE}</style>\n'
        + "\n".join([*_header(topology), *body, *legend])
        + "\n</svg>\n"
    )


def _refuse_crowd(wiring: Wiring) -> None:
    """Refuse more than can be told apart; links into switches are drawn for one GPU where there are many."""
    switched = wiring.coordinates.kind == "switched"
    if wiring.n_nodes > MOST_NODES or (wiring.n_links > 2 * MOST_EDGES and not switched):
        what = f"{wiring.n_nodes:,} nodes and {wiring.n_links:,} directed bundles of links are too many to draw"
        hint = f"at most {MOST_NODES:,} and {2 * MOST_EDGES:,}: lower gpu.count, or see collsim topo show"
        raise InputError(Fault(what, "topo", hint))


def _harms(damage: Damage) -> dict[tuple[int, int], str]:
    """Return the pairs of nodes whose links are ``lost``, or are ``weak``: fewer or slower than they were."""
    links = damage.changed
    pairs = zip(links.src.tolist(), links.dst.tolist(), (links.parallel == 0).tolist(), strict=True)
    return {(min(a, b), max(a, b)): "lost" if lost else "weak" for a, b, lost in pairs}


def _edges(wiring: Wiring, harms: Mapping[tuple[int, int], str]) -> list[Edge]:
    """Return one edge per pair of nodes; a pair wired in one direction only counts too."""
    found: dict[tuple[int, int], Edge] = {}
    for link in range(wiring.n_links):
        a, b = sorted((int(wiring.link_src[link]), int(wiring.link_dst[link])))
        count = int(wiring.link_count[link])
        rate_Bps = float(wiring.link_bandwidth_Bps[link]) / count
        found.setdefault((a, b), Edge(a, b, count, rate_Bps, harms.get((a, b), "")))
    return list(found.values())


def _lines(edges: list[Edge], places: list[Point], rates: list[int], *, switched: bool) -> Iterable[str]:
    """Yield a line per edge; in a switched domain those of the first GPU stand out, elsewhere tags count the links."""
    for edge in edges:
        faded = " faded" * (switched and edge.a > 0)
        look = f"r{min(rates.index(round(edge.rate_Bps)), 4)}" + (f" {edge.harm}" if edge.harm else faded)
        (x1, y1), (x2, y2), peak = places[edge.a], places[edge.b], _peak(places[edge.a], places[edge.b], places)
        middle = _middle(places[edge.a], places[edge.b])
        if switched:  # from the top of a GPU to the bottom of a switch, not behind the switches beside it
            y1, y2 = y1 - BOX_HEIGHT / 2, y2 + BOX_HEIGHT / 2
        bend = f"Q {2 * peak[0] - (x1 + x2) / 2:.1f} {2 * peak[1] - (y1 + y2) / 2:.1f}" if peak != middle else "L"
        path = f"M {x1:.1f} {y1:.1f} {bend} {x2:.1f} {y2:.1f}"
        yield f'<path class="{look}" d="{path}" stroke-width="{1.0 + 0.8 * edge.count:.1f}"/>'
    if not switched:
        for edge in edges:
            if edge.count > 1:
                yield _tag(places[edge.a], places[edge.b], _peak(places[edge.a], places[edge.b], places), edge.count)


def _peak(a: Point, b: Point, places: list[Point]) -> Point:
    """Return the middle of the line from a to b, off to an arc if other nodes lie between them in a row or column."""
    middle, length = _middle(a, b), max(abs(a[0] - b[0]), abs(a[1] - b[1]))
    for along, across in ((0, 1), (1, 0)):
        ends = sorted((a[along], b[along]))
        if abs(a[across] - b[across]) < 1 and any(
            ends[0] < place[along] < ends[1] and abs(place[across] - a[across]) < 1 for place in places
        ):
            off = 24 + 0.06 * length
            return (middle[0], middle[1] - off) if across else (middle[0] - off, middle[1])
    return middle


def _middle(a: Point, b: Point) -> Point:
    return (a[0] + b[0]) / 2, (a[1] + b[1]) / 2


def _captions(wiring: Wiring, places: list[Point]) -> list[str]:
    """Return captions above the switches: the number of links from every GPU to each of them."""
    n = wiring.n_gpus
    counts = {
        int(wiring.link_dst[i]): int(wiring.link_count[i]) for i in range(wiring.n_links) if wiring.link_src[i] == 0
    }
    if len(set(counts.values())) == 1:
        count = next(iter(counts.values()))
        text = f"{count} link{'s' if count > 1 else ''} from every GPU to each of {wiring.n_nodes - n} switches"
        return [f'<text class="soft" x="{MARGIN}" y="{places[n][1] - 26:.1f}" font-size="13">{text}</text>']
    return [
        f'<text class="soft" x="{places[switch][0]:.1f}" y="{places[switch][1] - 26:.1f}" text-anchor="middle" '
        f'font-size="13">{count} links from every GPU</text>'
        for switch, count in counts.items()
    ]


def _tag(a: Point, b: Point, peak: Point, count: int) -> str:
    """Write on a line how many links it is: off its middle, where lines cross, but on the peak of an arc."""
    x, y = (a[0] + 0.68 * (b[0] - a[0]), a[1] + 0.68 * (b[1] - a[1])) if peak == _middle(a, b) else peak
    return (
        f'<rect class="tag" x="{x - 11:.1f}" y="{y - 8:.1f}" width="22" height="15" rx="3"/>'
        f'<text class="tagtext" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{count}x</text>'
    )


def _node(wiring: Wiring, node: int, place: Point, size: float, *, gone: bool) -> str:
    """Return a box with the node's name."""
    x, y = place
    name = wiring.node_names[node]
    is_gpu = node < wiring.n_gpus
    width = size if is_gpu or size < ROOMY else size + 12
    if size < ROOMY:
        name = name.removeprefix("gpu") if is_gpu else "sw" + "".join(c for c in name if c.isdigit())
    font = min(13.0, 1.5 * width / max(len(name), 1))
    look, left, top = ("box" if is_gpu else "switch") + " gone" * gone, x - width / 2, y - BOX_HEIGHT / 2
    return (
        f'<rect class="{look}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{BOX_HEIGHT:g}" rx="6" stroke-width="1.4"/>'
        f'<text x="{x:.1f}" y="{y + font / 3:.1f}" text-anchor="middle" font-size="{font:.1f}">{escape(name)}</text>'
    )


def _header(topology: Topology) -> list[str]:
    """Return the title and the totals."""
    shown = describe(topology)
    totals = (
        f"{format_count(shown['ranks'], 'GPU')}, {shown['physical_links']} links; "
        f"per GPU {format_range(shown['per_gpu_uni_Bps'], shown['per_gpu_uni_max_Bps'])} in one direction, "
        f"{format_range(shown['per_gpu_bidi_Bps'], shown['per_gpu_bidi_max_Bps'])} in both"
    )
    title_size = min(20.0, 1.75 * (WIDTH - 2 * MARGIN) / max(len(topology.title), 1))
    return [
        f'<text x="{MARGIN}" y="36" font-size="{title_size:.1f}" font-weight="600">{escape(topology.title)}</text>',
        f'<text class="soft" x="{MARGIN}" y="62" font-size="14">{escape(totals)}</text>',
    ]


def _legend(topology: Topology, edges: list[Edge], rates: list[int], bottom: float, *, crowded: bool) -> list[str]:
    """Return one line per rate, and what is left out of the picture."""
    kind = topology.labels.get("link.type", "link") if len(rates) == 1 else "links"
    lines = []
    for i, rate in enumerate(rates):
        y = bottom + 14 + 22 * i
        count = sum(edge.count for edge in edges if round(edge.rate_Bps) == rate and edge.harm != "lost")
        text = f"{kind}, {format_bandwidth(rate)} per direction and link ({count} links)"
        lines.append(
            f'<line class="r{min(i, 4)}" x1="{MARGIN}" y1="{y}" x2="{MARGIN + 34}" y2="{y}" stroke-width="4"/>'
        )
        lines.append(f'<text x="{MARGIN + 44}" y="{y + 5}" font-size="14">{escape(text)}</text>')
    if crowded:
        y = bottom + 19 + 22 * len(rates)
        text = f"only the links of {topology.wiring.node_names[0]} are drawn; every GPU has the same"
        lines.append(f'<text class="soft" x="{MARGIN}" y="{y}" font-size="14">{escape(text)}</text>')
    if topology.damage is not None:
        y = bottom + 14 + 22 * (len(rates) + crowded)
        look = "lost" if topology.damage.fail else "weak"
        lines.append(f'<line class="{look}" x1="{MARGIN}" y1="{y}" x2="{MARGIN + 34}" y2="{y}" stroke-width="4"/>')
        lines.append(f'<text x="{MARGIN + 44}" y="{y + 5}" font-size="14">{escape(topology.damage.summary)}</text>')
    return lines
