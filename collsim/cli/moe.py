"""``collsim moe``: dispatch and combine of models with experts, by the number of ranks that experts are spread over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import Renamed, expert_options, screen_options
from collsim.cli.output import (
    check_suffix,
    check_targets,
    named_files,
    output_format,
    patience,
    screen_of,
    write,
    write_page,
)
from collsim.cli.run import place_of
from collsim.core.errors import PARTLY, Faults
from collsim.simulation.request.fields import SCALE_OUT

if TYPE_CHECKING:
    from collsim.moe import MoeComparison

__all__ = ["moe"]


def _listing(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print the models or the kernels that there are, and leave."""
    if wanted:
        from collsim.report.moe import kernels_text, models_text

        write_page(models_text() if parameter.name == "list_models" else kernels_text())
        context.exit()


@click.command(cls=Renamed, context_settings={"auto_envvar_prefix": "COLLSIM"})
@expert_options
@click.option("--format", "form", envvar="COLLSIM_FORMAT", metavar="FORMAT", help="table, csv, json or md.")
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@click.option("--svg", metavar="FILE", help="Draw the bytes of dispatch from rank to rank there, for up to 256 ranks.")
@screen_options
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.option("--list-models", is_flag=True, is_eager=True, expose_value=False, callback=_listing, help="Models.")
@click.option("--list-kernels", is_flag=True, is_eager=True, expose_value=False, callback=_listing, help="Kernels.")
@click.pass_context
def moe(
    context: click.Context,
    /,
    *,
    form: str | None,
    output: str | None,
    svg: str | None,
    quiet: bool,
    wide: bool,
    verbose: bool,
    **flags: Any,
) -> None:
    """Predict how long dispatch and combine of a layer with experts take, and what limits them.

    \b
    Examples:
      collsim moe --topo hgx_h100 --nodes 8 --ep 8,16,32,64
      collsim moe --topo hgx_h100 --nodes 8 --ep 64 --skew 1.0 --expert-placement balanced --redundant 64
      collsim moe --topo gb200_nvl72 --ep 64 --phase decode --tokens 64
      collsim moe --topo mi355x_rack128 --ep 64,128 --compare gb200_nvl72,mi400_ualoe72
      collsim moe --topo hgx_h100 --experts 64 --topk 6 --hidden 2048 --layers 26 --svg bytes.svg

    --list-models and --list-kernels print what there is. Flags that describe the machine hold for all systems that
    --compare names; behind a name stand changes of it alone: NAME,PATH=VALUE,PATH=VALUE.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.core.progress import interrupted
    from collsim.report.moe import MOE_FORMATS, render_moe

    faults = Faults(lambda where: place_of(context, where, None))
    target = faults.attempt(lambda: output_format(form, output, MOE_FORMATS))
    sources = [*named_files(flags["topo"], flags["profile"]), *filter(None, [flags["counts"]])]
    check_targets({"output": output, "svg": svg}, faults, sources)
    faults.attempt(lambda: check_suffix(svg, (".svg",), "end it in .svg: the drawing is SVG", "svg"))
    with patience(quiet, keeps_done=True):
        comparison = _answered(flags, faults, drawn=svg is not None)
        is_part = interrupted()
    first = comparison.systems[0].result
    assert first is not None
    found = comparison if flags["compare"] else first
    if not quiet:
        for warning in found.warnings:
            click.echo(f"warning: {warning}", err=True)
    screen = screen_of(None if is_part else output, wide=wide, verbose=verbose)
    if is_part:  # files are whole or not there
        write(render_moe(found, target or "table", screen), None)
        raise KeyboardInterrupt
    if svg is not None:
        from collsim.report.svg.heat_map import byte_map_svg

        write(byte_map_svg(first), svg)
    write(render_moe(found, target or "table", screen), output)
    if lines := _refused(comparison, alone=not flags["compare"]):
        for line in lines:
            click.echo(f"error: {line}", err=True)
        context.exit(PARTLY)


def _refused(comparison: MoeComparison, *, alone: bool) -> list[str]:
    """Return what has no answer, a line each; of a system *alone* without its name."""
    return [
        f"{'' if alone else f'{label}, '}{each.ranks} ranks: {each.what}" + f"\n  hint: {each.hint}" * bool(each.hint)
        for label, each in comparison.refused
    ]


def _answered(flags: dict[str, Any], faults: Faults, *, drawn: bool) -> MoeComparison:
    """Check everything that was asked, raise all that is wrong with it, and simulate."""
    asked = _asked(flags, faults)
    from collsim.moe.compare import answered, prepare

    cases = faults.attempt(lambda: prepare([flags["topo"], *_names(flags["compare"])], **asked))
    if drawn and cases:
        _, question = next(iter(cases.values()))
        assert question is not None
        _check_drawing([place.n_ranks for place in question.placements], faults)
    faults.raise_any()
    assert cases is not None
    found = faults.attempt(lambda: answered(cases))
    faults.raise_any()
    assert found is not None
    return found


def _check_drawing(sizes: list[int], faults: Faults) -> None:
    """Refuse to draw several numbers of ranks, or too many ranks."""
    from collsim.core.errors import Fault
    from collsim.moe.simulate import MOST_IN_MATRIX

    if len(sizes) > 1:
        what = f"{len(sizes)} numbers of ranks make several drawings"
        faults.append(Fault(what, "svg", f"give one of them, such as --ep {sizes[0]}"))
    elif sizes[0] > MOST_IN_MATRIX:
        hint = f"give at most {MOST_IN_MATRIX}, such as --ep {MOST_IN_MATRIX}"
        faults.append(Fault(f"{sizes[0]} ranks are too many to draw", "svg", hint))


def _asked(flags: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """Return the arguments of `prepare`; what could not be read is left out, its faults kept."""
    from collsim.cli import texts
    from collsim.moe.request import OWN_MODEL, USUAL_MODEL, Laws
    from collsim.simulation.request.prepare import Machine

    def read(name: str, parse: Callable[[str, str], Any]) -> Any:
        text = flags[name]
        return None if text is None else faults.attempt(lambda: parse(text, name))

    whole = ("experts", "top_k", "hidden", "layers", "expert_groups", "group_limit")
    figures = {name.removeprefix("expert_"): read(name, texts.read_number) for name in whole}
    unread = any(flags[name] is not None and figures[name] is None for name in OWN_MODEL)
    redundant = read("redundant", texts.read_number)
    return {
        "model": flags["model"] or (USUAL_MODEL if unread else None),
        "ep": read("ep", texts.read_counts),
        "tokens": read("tokens", texts.read_tokens),
        "laws": Laws(
            read("skew", texts.read_decimal), read("sigma", texts.read_decimal), flags["counts"], flags["balanced"]
        ),
        "sms": read("sms", texts.read_number),
        "seeds": read("seeds", texts.read_seeds),
        "redundant": 0 if redundant is None else redundant,
        **{
            name: flags[name]
            for name in ("mode", "phase", "expert_placement", "kernel", "tolerance", "load_only", "forward", "profile")
        },
        "machine": Machine(
            texts.read_overrides(flags["overrides"], faults),
            flags["fail"],
            texts.read_shares(flags["degrade"], faults),
            {name: flags[name] for name in SCALE_OUT},
        ),
        "figures": {**figures, "dispatch": flags["dispatch"], "combine": flags["combine"]},
    }


def _names(text: str | None) -> list[str]:
    """Return the systems that a list names, each with the changes behind it.

    >>> _names("gb200_nvl72,scale_out.nodes=2,mi400_ualoe72")
    ['gb200_nvl72,scale_out.nodes=2', 'mi400_ualoe72']
    """
    found: list[str] = []
    for part in [] if text is None else text.split(","):
        if "=" in part and found:
            found[-1] += f",{part}"
        else:
            found.append(part.strip())
    return found
