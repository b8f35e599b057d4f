"""A report as one HTML file that needs no network: pictures are SVG in it, and colours follow the reader's setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from collsim._version import __version__
from collsim.core.errors import Fault, SpecError
from collsim.core.operations import operation
from collsim.core.units import format_size
from collsim.explanation.contents import Contents, Document, Measured
from collsim.explanation.findings import Explanation
from collsim.report.html.answers import ANSWERS, EXPERTS
from collsim.report.html.explained import answer_cards, explained_html
from collsim.report.html.marks import card, cards, table, time_words
from collsim.report.html.panels import MOST_ROWS, curves_by_op, panel, panels, plain_table
from collsim.simulation.busbw_plot import Curve

__all__ = ["report_html"]

TITLES = {
    "collsim.result/1": "Prediction", "collsim.compare/1": "Systems compared", "collsim.validate/1": "Beside the log",
    "collsim.diagnose/1": "Diagnosis", "collsim.moe/1": "Dispatch and combine", "collsim.timeline/1": "Step",
    "collsim.explain/1": "Explanation", **{schema: title for schema, (title, _) in ANSWERS.items()},
}  # fmt: skip
NODES = re.compile(r"[\d,]+ nodes of ")
"""Beginning of the title of a cluster that was made of nodes."""


def report_html(contents: Contents) -> str:
    """Return the page.

    Raises
    ------
    SpecError
        A document is not as its schema says.
    """
    title, style = (
        _title(contents.documents, contents.measured),
        files(__name__).joinpath("page.css").read_text(encoding="utf-8"),
    )
    body = [f"<h1>{escape(title)}</h1>", f'<p class="soft">collsim {__version__}: predictions, not measurements'
            f"{', beside measured points' * bool(_points(contents))}.</p>"]  # fmt: skip
    if contents.explanations:
        body.append(answer_cards(contents.explanations[0][1]))
    for document in contents.documents:
        body += _as_told(document, lambda of: list(_document(of, contents)))
    used = {(curve.op, curve.ranks) for curve in _keys(contents)}
    lonely = [each for each in contents.measured if (each.op, each.ranks) not in used]
    body += _lonely(lonely)
    body += [f'<p class="warning">{escape(note)}</p>' for note in contents.notes]
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{style}</style>\n</head>\n'
        "<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _as_told(document: Document, make: Callable[[Document], list[str]]) -> list[str]:
    """Return what *make* makes of a document; refuse one that lacks what its schema promises."""
    try:
        return make(document)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        what = f"not as {document.schema} says: {type(error).__name__} {error}"
        raise SpecError(Fault(what, document.name, "write it again with this version")) from None


def _title(documents: Sequence[Document], measured: Sequence[Measured]) -> str:
    """Return what the page is about: operations and systems."""
    names = [name for each in documents for name in _as_told(each, _systems)]
    ops = [op for each in documents for op in _as_told(each, lambda of: [str(row["op"]) for row in _rows(of)])]
    ops += [each.op for each in measured]
    on = f" on {', '.join(dict.fromkeys(names))}" if names else ""
    return f"{', '.join(dict.fromkeys(ops)) or 'Report'}{on}"


def _systems(document: Document) -> list[str]:
    content = document.content
    named = [_with_nodes(str(_topology(content)["name"]), _topology(content))] if content.get("topology") else []
    return named + [_with_nodes(str(each["system"]), each.get("topology") or {}) for each in content.get("systems", ())]


def _with_nodes(name: str, topology: Mapping[str, Any]) -> str:
    """Return the name of a system, of a cluster of such nodes with how many there are.

    >>> _with_nodes("hgx_h100", {"title": "4 nodes of NVIDIA HGX H100"}), _with_nodes("alps", {"title": "Alps"})
    ('4 nodes of hgx_h100', 'alps')
    """
    nodes = NODES.match(str(topology.get("title", "")))
    return f"{nodes[0]}{name}" if nodes else name


def _topology(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the topology of a document; those of timelines have a name only."""
    found = content.get("topology") or {}
    return {"name": found} if isinstance(found, str) else found


def _rows(document: Document) -> list[Mapping[str, Any]]:
    """Return the rows of a document that are about one operation each."""
    content = document.content
    if document.schema == "collsim.compare/1":
        return [run for row in content["rows"] for run in row["runs"] if run]
    if document.schema == "collsim.explain/1":
        return [content["row"]]
    return [row for row in content.get("results") or content.get("rows") or () if "op" in row]


def _keys(contents: Contents) -> list[SimpleNamespace]:
    """Return operation and ranks of every row that has a curve."""
    return [
        SimpleNamespace(op=row["op"], ranks=row["ranks"])
        for document in contents.documents
        if document.schema in ("collsim.result/1", "collsim.compare/1", "collsim.validate/1", "collsim.explain/1")
        for row in _rows(document)
    ]


def _points(contents: Contents) -> bool:
    return bool(contents.measured) or any(each.schema == "collsim.validate/1" for each in contents.documents)


def _document(document: Document, contents: Contents) -> Iterator[str]:
    """Yield the sections of one document."""
    content = document.content
    topology = _topology(content)
    of = _with_nodes(str(topology.get("name", Path(document.name).name)), topology)
    of += f", {topology['ranks']:,} GPUs" if "ranks" in topology else ""
    yield f"<h2>{escape(TITLES[document.schema])}: {escape(of)}</h2>"
    yield from _provenance(content)
    yield from (f'<p class="warning">{escape(text)}</p>' for text in content.get("warnings", ()))
    match document.schema:
        case "collsim.result/1" | "collsim.explain/1":
            yield from panels(curves_by_op(_rows(document)), contents.measured, _rows(document))
        case "collsim.compare/1":
            yield from _compared(content, contents.measured)
        case "collsim.validate/1":
            yield from _validated(content)
        case "collsim.diagnose/1":
            yield from _diagnosed(content)
        case "collsim.timeline/1":
            yield from _timed(content)
        case schema if schema in ANSWERS:
            yield from ANSWERS[schema][1](content)
        case _:
            yield cards(_cards_of_experts(content["results"]))
            yield plain_table(content["results"], EXPERTS)
    for name, found in contents.explanations:
        if name == document.name:
            yield from _explained(found, contents)


def _explained(found: Explanation, contents: Contents) -> Iterator[str]:
    """Yield an explanation under its title; the first one has its cards at the top of the page."""
    row, topology = found.row, found.result.topology
    what = f"{row.op} of {format_size(row.size_bytes)} on {_with_nodes(topology['name'], topology)}"
    yield f"<h2>{escape(what)}, explained</h2>"
    if found is not contents.explanations[0][1]:
        yield answer_cards(found)
    yield explained_html(found)


def _provenance(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what stands behind the figures: profile, damage."""
    profile, topology = content.get("profile"), _topology(content)
    if isinstance(profile, str):
        yield f'<p class="soft">Profile {escape(profile)}</p>'
    elif profile:
        calibrated = "calibrated" if profile.get("calibrated") else "not calibrated"
        told = f"Profile {profile['name']} ({calibrated}): {profile.get('constants') or ''}"
        yield f'<p class="soft">{escape(told)}</p>'
    if damage := topology.get("damage"):
        yield f'<p class="warning">With {escape(damage["summary"])}</p>'


def _compared(content: Mapping[str, Any], measured: Sequence[Measured]) -> Iterator[str]:
    """Yield the systems of a comparison as curves, and a table of times with how many times as fast each is."""
    names = [str(system["system"]) for system in content["systems"]]
    rows = [
        {**run, "asked": names[place]} for row in content["rows"] for place, run in enumerate(row["runs"]) if run
    ]  # fmt: skip
    yield from panels(curves_by_op(rows), measured)
    cells = []
    for row in content["rows"][:MOST_ROWS]:
        first = next(run for run in row["runs"] if run)
        times = ["" if run is None else f"{run['time_s'] * 1e6:.2f}" for run in row["runs"]]
        speed = ["" if each is None else f"{each:.2f}x" for each in row["speedups"][1:]]
        cells.append((first["op"], format_size(first["size_bytes"]), *times, *speed))
    faster = [f"{name}: times as fast" for name in names[1:]]
    yield table(("op", "size", *(f"{name} (us)" for name in names), *faster), cells, words=(0,))


def _validated(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a log beside the model: curves with measured points, and a table of errors."""
    rows = content["rows"]
    for op, ranks in dict.fromkeys((row["op"], row["ranks"]) for row in rows):
        own = sorted(
            (row for row in rows if (row["op"], row["ranks"]) == (op, ranks)), key=lambda row: row["size_bytes"]
        )
        yield f"<h3>Bus bandwidth: {escape(op)} on {ranks} ranks</h3>"
        curve = _predicted(own, f"{op}, {ranks} ranks, predicted")
        files = dict.fromkeys(row["file"] for row in own)
        points = [
            (file, [(row["size_bytes"], row["measured_busbw_Bps"]) for row in own if row["file"] == file])
            for file in files
        ]
        yield panel([curve], points, f"bus bandwidth of {op} on {ranks} ranks, measured and predicted")
    yield table(
        ("log", "op", "size", "measured (us)", "predicted (us)", "error", "verdict", "limited by"),
        [
            (
                f"{row['file']}:{row['line']}", row["op"], format_size(row["size_bytes"]),
                f"{row['measured_s'] * 1e6:.2f}", f"{row['predicted_s'] * 1e6:.2f}", f"{row['rel_error']:+.1%}",
                row["verdict"], row["limited_by"],
            )
            for row in rows[:MOST_ROWS]
        ],
        words=(0, 1, 6, 7),
    )  # fmt: skip


def _predicted(rows: Sequence[Mapping[str, Any]], label: str) -> Curve:
    """Return the predictions for measured rows as a curve, one point for each size."""
    by_size = {row["size_bytes"]: row for row in rows}
    own = list(by_size.values())

    def at(row: Mapping[str, Any], time_s: float | None) -> float | None:
        return row["predicted_busbw_Bps"] * row["predicted_s"] / time_s if time_s else None

    return Curve(
        label,
        tuple(by_size),
        tuple(row["predicted_busbw_Bps"] for row in own),
        tuple(at(row, row["time_hi_s"]) for row in own),
        tuple(at(row, row["time_lo_s"]) for row in own),
        tuple(at(row, row["lower_bound_s"]) for row in own),
    )


def _diagnosed(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the verdict on logs, the likely causes, and their curves beside the measured points."""
    verdict = "nothing that was simulated explains it" if content["unexplained"] else "the likely causes follow"
    yield f"<p>Verdict: <b>{escape(content['verdict'])}</b>; {verdict}.</p>"
    yield table(
        ("cause", "likelihood", "off by", "to fix"),
        [
            (
                "; ".join(cause["title"] for cause in found["causes"]), f"{found['probability']:.0%}",
                f"{found['rms']:.0%}", found["causes"][0]["fix"],
            )
            for found in content["findings"]
        ],
        words=(0, 3),
    )  # fmt: skip
    for log in content["logs"]:
        if log.get("flagged"):
            yield f"<h3>Impossible times and wrong results: {escape(log['file'])}</h3>"
            yield plain_table(log["flagged"])
        if not log["sizes_bytes"]:
            continue
        factor = operation(log["op"]).busbw_factor(log["ranks"])
        sizes = tuple(log["sizes_bytes"])

        def rates(
            times_s: Sequence[float | None], sizes: tuple[int, ...] = sizes, factor: float = factor
        ) -> tuple[Any, ...]:
            return tuple(
                None if not time_s else size * factor / time_s for size, time_s in zip(sizes, times_s, strict=True)
            )

        none = (None,) * len(sizes)
        healthy = Curve(
            "a healthy machine",
            sizes,
            rates(log["healthy_s"]),
            rates(log["healthy_hi_s"]),
            rates(log["healthy_lo_s"]),
            none,
        )
        causes = [
            Curve(each["name"], sizes, rates(each["times_s"]), none, none, none)
            for each in log["curves"]
            if each["name"] != "healthy"
        ]
        points = [(log["file"], [(size, rate) for size, rate in zip(sizes, rates(log["measured_s"]), strict=True)])]
        yield f"<h3>Bus bandwidth: {escape(log['op'])} on {log['ranks']} ranks</h3>"
        yield panel([healthy, *causes[:3]], points, f"bus bandwidth of {log['op']}, measured, healthy and by cause")


def _cards_of_experts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield time, band and limit of dispatch and of combine over the most ranks."""
    most = max((row["ranks"] for row in rows), default=0)
    for row in rows:
        if row["ranks"] == most:
            yield card(f"{row['op']} over {most} ranks", time_words(row["time_s"]), _band(row))
            yield card(f"{row['op']}: limited by", row["limited_by"], hot=True)


def _band(row: Mapping[str, Any]) -> str:
    """Return the error band of a time in words; empty without one."""
    low_s, high_s = row.get("time_lo_s"), row.get("time_hi_s")
    return f"90 % of measured times: {time_words(low_s)} to {time_words(high_s)}" if low_s and high_s else ""


def _timed(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a step: how long, what it is made of, its collectives, and what would help."""
    words = {"compute_s": "kernels", "communication_s": "collectives", "exposed_s": "collectives that are waited for"}
    told = [card("step", time_words(content["step_time_s"]), _band(content))]
    told += [card(name, time_words(content[key])) for key, name in words.items()]
    if content["path"]:
        longest = max(content["path"], key=lambda part: part["time_s"])
        share = f"{longest['time_s'] / content['step_time_s']:.0%} of the step, on its critical path"
        told.append(card("limited by", longest["what"], share, hot=True))
    yield cards(told)
    for key, title in (("path", "Critical path"), ("helps", "What would help"), ("calls", "Collectives")):
        yield f"<h3>{title}</h3>"
        yield plain_table(content[key])


def _lonely(measured: Sequence[Measured]) -> Iterator[str]:
    """Yield what was measured of operations and ranks that no document has."""
    for op, ranks in dict.fromkeys((each.op, each.ranks) for each in measured):
        points = [(each.name, each.points) for each in measured if (each.op, each.ranks) == (op, ranks)]
        yield f"<h2>Measured: {escape(op)} on {ranks} ranks</h2>"
        yield panel([], points, f"measured bus bandwidth of {op} on {ranks} ranks")
