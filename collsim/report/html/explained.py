"""An explanation as a part of a page: where the time goes, what would help, links, phases, transfers in time."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from collsim.core.units import format_bandwidth, format_bytes, format_size
from collsim.explanation.findings import KINDS, Explanation, Part
from collsim.report.explanation import shown_what_ifs
from collsim.report.html.marks import card, cards, figure, legend, table, time_words
from collsim.report.svg.load_picture import load_picture
from collsim.report.svg.step_chart import step_chart

__all__ = ["answer_cards", "explained_html"]

WIDTH, HIGH = 920, 46
LEAST_LABEL = 0.07
LETTER = 7.6
"""Width of a letter of a label; a part without room for its name has its share alone."""
LEAST_PART = 5e-5
"""Of the time; smaller parts are in JSON only."""
MOST_CONTENDERS = 8


def answer_cards(found: Explanation) -> str:
    """Return the answer at a glance: time, how sure, what limits, how far from the bound, what would help."""
    row = found.row
    sure = "not measured"
    how = "no log tells how far predictions of such a run are off"
    if row.time_lo_s is not None and row.time_hi_s is not None:
        sure = f"{time_words(row.time_lo_s)} to {time_words(row.time_hi_s)}"
        low, high = row.time_lo_s / row.time_s - 1, row.time_hi_s / row.time_s - 1
        how = f"90 % of measured times lie there: {low:+.0%} to {high:+.0%}"
    busiest = max(found.tiers, key=lambda tier: tier.busiest, default=None)
    wires = f"busiest link {busiest.link}: {busiest.busiest:.0%} busy" if busiest else ""
    best = found.best
    told = [
        card(
            f"{row.op} of {format_size(row.size_bytes)}",
            time_words(row.time_s),
            f"busbw {row.busbw_Bps / 1e9:.1f} GB/s",
        ),
        card("Error band", sure, how),
        card("Limited by", row.limited_by, wires, hot=True),
        card("Lower bound", time_words(row.lower_bound_s), f"{row.bound}; {row.efficiency:.0%} of the time"),
    ]
    if best is not None:
        gain = f"{best.gain_s / found.time_s:.0%} less: {time_words(best.time_s or 0.0)}"
        told.append(card("What would help most", best.title, gain))
    return cards(told)


def explained_html(found: Explanation) -> str:
    """Return the sections of an explanation."""
    return "\n".join(_sections(found))


def _sections(found: Explanation) -> Iterator[str]:
    row = found.row
    yield f"<h3>Where the {time_words(row.time_s)} go</h3>"
    yield figure(_bar(found), "Each part is how much sooner the call ends without it, taken away in a fixed order.")
    yield _parts(found)
    if found.what_ifs:
        yield "<h3>What would help most</h3>"
        yield _what_ifs(found)
    if picture := load_picture(found):
        yield "<h3>Load of the links</h3>"
        yield figure(picture, f"Limited by: {escape(row.limited_by)}.")
    if found.tiers:
        yield _tiers(found)
    if found.tiers_told:
        yield f'<p class="doubt">{escape(found.tiers_told)}</p>'
    yield "<h3>What ran, and why</h3>"
    yield from _chosen(found)
    yield from _timeline(found)
    yield from (f'<p class="doubt">{escape(note)}</p>' for note in found.notes)


def _bar(found: Explanation) -> str:
    """Return the kinds of parts as one bar; what is negative has no place in it."""
    totals = [(place, kind, found.total(kind)) for place, kind in enumerate(KINDS)]
    shown = [each for each in totals if each[2] > 0]
    whole_s, x, body = sum(each[2] for each in shown), 0.0, []
    for place, kind, total_s in shown:
        wide = total_s / whole_s * WIDTH
        share = total_s / found.time_s
        body.append(
            f'<rect class="part p{place}" x="{x:.1f}" y="0" width="{max(wide - 1, 0.5):.1f}" height="{HIGH}">'
            f"<title>{kind}: {time_words(total_s)}, {share:.0%}</title></rect>"
        )
        if wide / WIDTH >= LEAST_LABEL:
            middle = x + wide / 2
            if wide > LETTER * len(kind):
                body.append(f'<text class="onpart" x="{middle:.1f}" y="20" text-anchor="middle">{kind}</text>')
            body.append(f'<text class="onpart" x="{middle:.1f}" y="36" text-anchor="middle">{share:.0%}</text>')
        x += wide
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HIGH}" role="img" '
        'aria-label="parts of the time">\n' + "\n".join(body) + "\n</svg>\n"
    )


def _parts(found: Explanation) -> str:
    """Return the parts as a table: kinds, and what each is made of."""
    rows = []
    for place, kind in enumerate(KINDS):
        parts = [part for part in found.parts if part.kind == kind and abs(part.time_s) >= LEAST_PART * found.time_s]
        if not parts:
            continue
        total_s = found.total(kind)
        alone = parts[0] if len(parts) == 1 and not parts[0].constants else None
        meaning = (
            KINDS[kind] if alone is None or kind == "bound" else alone.title + f" ({alone.note})" * bool(alone.note)
        )
        rows.append(
            f'<tr class="kind"><td class="w p{place}"><i class="key"></i>{kind}</td>'
            f"<td>{total_s * 1e6:.2f}</td><td>{total_s / found.time_s:.1%}</td>"
            f'<td class="w soft">{escape(meaning)}</td></tr>'
        )
        if alone is None or kind == "bound":
            rows += [_part(part, alone=len(parts) == 1) for part in parts]
    rows.append(
        f'<tr class="kind"><td class="w">sum</td><td>{found.time_s * 1e6:.2f}</td><td>100.0%</td><td></td></tr>'
    )
    head = '<tr><th class="w">part</th><th>us</th><th>share</th><th class="w">what it is</th></tr>'
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def _part(part: Part, *, alone: bool) -> str:
    constants = "; ".join(f"{each.key} {each.value} ({each.status})" for each in part.constants)
    text = part.title + (f": {constants}" if constants else "") + (f" ({part.note})" if part.note else "")
    time = "" if alone else f"{part.time_s * 1e6:.2f}"
    return f'<tr class="of"><td></td><td>{time}</td><td></td><td class="w">{escape(text)}</td></tr>'


def _what_ifs(found: Explanation) -> str:
    """Return the changes that help most, as a list with flags to type."""
    shown = shown_what_ifs(found)
    if not shown:
        return "<p>Nothing that was simulated would help.</p>"
    told = []
    for each in shown:
        flags = f"<code>{escape(each.flags)}</code>" if each.flags.startswith("--") else escape(each.flags)
        doubt = f'<br><span class="doubt">in doubt: {escape(each.warnings[0])}</span>' if each.warnings else ""
        gain = f"{time_words(each.time_s or 0.0)}, {each.gain_s / found.time_s:.1%} less"
        told.append(f"<li><b>{escape(each.title)}</b>: {gain}<br>{flags}{doubt}</li>")
    others = len(found.what_ifs) - len(shown)
    return f'<ol class="help">{"".join(told)}</ol><p class="soft">{others} more were simulated and gain less.</p>'


def _tiers(found: Explanation) -> str:
    return table(
        ("tier", "links", "bytes", "busy, mean", "busy, most", "busiest link", "of"),
        [
            (
                tier.title, f"{tier.links:,}", format_bytes(tier.bytes), f"{tier.mean:.0%}", f"{tier.busiest:.0%}",
                tier.link, format_bandwidth(tier.capacity_Bps),
            )
            for tier in found.tiers
        ],
        words=(0, 5),
    )  # fmt: skip


def _chosen(found: Explanation) -> Iterator[str]:
    """Yield what ran, what was compared, and what it sends."""
    chosen = found.chosen
    proto = f" with {chosen.proto}" if chosen.proto else ""
    by = chosen.by if chosen.by.startswith("named") else f"chosen by {chosen.by}"
    how = f"on {chosen.channels} channels, {by}: {chosen.why}."
    yield f"<p><b>{escape(chosen.algo + proto)}</b> {escape(how)}</p>"
    if chosen.contenders:
        yield table(
            ("compared", "estimate (us)", "simulated (us)", ""),
            [
                (
                    f"{each.algo}/{each.proto}" if each.proto else each.algo,
                    "" if each.estimate_s is None else f"{each.estimate_s * 1e6:.2f}",
                    "" if each.simulated_s is None else f"{each.simulated_s * 1e6:.2f}",
                    "runs" if each.chosen else "",
                )
                for each in chosen.contenders[:MOST_CONTENDERS]
            ],
            words=(0, 3),
        )
    yield from (f'<p class="doubt">in doubt: {escape(doubt)}</p>' for doubt in chosen.doubts)
    if found.phases:
        yield table(
            ("what it sends", "steps", "messages", "bytes"),
            [
                (f"{phase.does} {phase.where}", f"{phase.steps:,}", f"{phase.transfers:,}", format_bytes(phase.bytes))
                for phase in found.phases
            ],
            words=(0,),
        )


def _timeline(found: Explanation) -> Iterator[str]:
    """Yield the transfers in time, or why there are none."""
    if not found.spans:
        if found.spans_told:
            yield f'<p class="doubt">No picture of the transfers in time: {escape(found.spans_told)}.</p>'
        return
    yield "<h3>Transfers in time</h3>"
    picture, told = step_chart(found.spans, found.time_s)
    whose = "; ".join(
        filter(None, ("a row for each sender, pale while a transfer waits for its latency", told, found.spans_told))
    )
    yield figure(picture, escape(f"{whose[0].upper()}{whose[1:]}."))
    yield legend([("s0", "line", "copies"), ("s1", "line", "adds to what is there")])
