"""The nearest right value, for a wrong one of every flag whose values can be listed, in every command that has it."""

from importlib import import_module

import click
import pytest

from collsim.cli import COMMANDS

from ..timeline.conftest import Made, ddp
from .conftest import ROOT
from .test_bad_input import refused

LOG, IMPORTS = str(ROOT / "examples" / "h100_all_reduce.log"), ROOT / "examples" / "imports"
ASKED = ("--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M")
ONE = ("--algo", "ring")
BASES = {
    "run": ASKED,
    "compare": ("hgx_h100", "hgx_b200", *ASKED[2:]),
    "explain": ASKED,
    "tune": ASKED,
    "sweep": (str(ROOT / "examples" / "sweep.yaml"),),
    "moe": ("--topo", "hgx_h100", "--ep", "8", "--tokens", "16"),
    "tables": ("--topo", "hgx_h100", "--elements", "1048576"),
    "timeline": (str(ROOT / "examples" / "training_step.yaml"),),
    "serve": (str(ROOT / "examples" / "serving.yaml"),),
    "validate": (LOG, *ASKED[:2]),
    "diagnose": (LOG, *ASKED[:2]),
    "calibrate": (LOG, *ASKED[:2]),
    "report": (LOG,),
    "topo list": (),
    "topo show": ("hgx_h100",),
    "topo draw": ("hgx_h100",),
    "topo check": ("hgx_h100",),
    "topo import": (str(IMPORTS / "topo_m.txt"),),
    "schedule show": (*ASKED, *ONE),
    "schedule export": (*ASKED, *ONE, "-o", "ring.json"),
    "schedule import": (str(IMPORTS / "msccl_ring.xml"),),
    "schedule run": (str(IMPORTS / "msccl_ring.xml"), "--topo", "dgx_a100"),
}
"""Arguments without a fault, by command."""
NEAR = {
    "--topo": ("hgx_h10", "hgx_h100"),
    "--op": ("all_reduec", "all_reduce"),
    "--algo": ("rign", "ring"),
    "--proto": ("LL129", "LL128"),
    "--library": ("ncl-2.28", "nccl-2.28"),
    "--env": ("NCCL_ALG=Ring", "NCCL_ALGO"),
    "--dtype": ("flaot", "float"),
    "--redop": ("smu", "sum"),
    "--profile": ("idael", "ideal"),
    "--start": ("hgx_h10", "hgx_h100"),
    "--launch": ("grahp", "graph"),
    "--host": ("vitrual", "virtual"),
    "--registered": ("symetric", "symmetric"),
    "--placement": ("cylcic", "cyclic"),
    "--split": ("MDO 8", "MOD 8"),
    "--over": ("dpp", "dp"),
    "--fabric": ("fattree", "fat_tree"),
    "--network": ("ib", "infiniband"),
    "--set": ("link.bandwith=5 GB/s", "link.bandwidth"),
    "--fail": ("swich:nvsw99", "switch:nvsw99"),
    "--degrade": ("lnk:gpu0-nvsw0=50%", "link:gpu0-nvsw0"),
    "--load": ("lnk:gpu0->nvsw*=30%", "link:gpu0->nvsw*=30%"),
    "--columns": ("byte", "bytes"),
    "--format": ("tabel", "table"),
    "--causes": ("nvls_of", "nvls_off"),
    "--compare": ("hgx_b20", "hgx_b200"),
    "--model": ("deepsek-v3", "deepseek-v3"),
    "--dispatch": ("fp88", "fp8"),
    "--combine": ("bf61", "bf16"),
    "--mode": ("lowlatncy", "low_latency"),
    "--phase": ("decod", "decode"),
    "--expert-placement": ("ronud_robin", "round_robin"),
    "--kernel": ("depep_h100", "deepep"),
    "--forward": ("rial", "rail"),
    "--pareto": ("cots,time", "cost"),
    "--price": ("hgx_h10=2", "hgx_h100"),
    "--power": ("hgx_h10=700", "hgx_h100"),
    "--recorded-on": ("hgx_h10", "hgx_h100"),
    "--like": ("hgx_h10", "hgx_h100"),
    "--kind": ("nvidia_sim", "nvidia_smi"),
}
"""A wrong value of each flag, and what its error has to offer."""
OF_ONE = {("tables", "--kind"): ("ncl", "nccl")}
"""The same of flags that have other values in one command."""
BESIDE = {"--over": ("--groups", "tp=4,dp=2")}
"""What a flag needs beside it."""
NAMED = ("NAME", "KIND", "TYPE", "OP", "SET", "TOPO", "FORMAT", "WHAT", "PATH=", "LINKS", "SPLIT", "[sym")
OWN = {("calibrate", "--name"): "a name of one's own"}


def _commands(name, command):
    """Yield each command below a group with its words."""
    if isinstance(command, click.Group):
        for below, each in command.commands.items():
            yield from _commands(f"{name} {below}", each)
    else:
        yield name, command


def _flags():
    """Yield every command with every flag whose values can be listed."""
    for name in COMMANDS:
        for words, command in _commands(name, getattr(import_module(f"collsim.cli.{name}"), name)):
            for option in command.params:
                if isinstance(option, click.Option) and (option.metavar or "").startswith(NAMED):
                    flag = next((each for each in option.opts if each in NEAR), option.opts[0])
                    if (words, flag) not in OWN:
                        yield words, flag, option.opts


@pytest.mark.parametrize(
    ("command", "flag", "spellings"), [pytest.param(*each, id=" ".join(each[:2])) for each in _flags()]
)
def test_the_nearest_value_is_offered(collsim, command, flag, spellings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong, right = OF_ONE.get((command, flag)) or NEAR[flag]
    base = list(BASES[command])
    if flag in base:
        place = base.index(flag)
        del base[place : place + 2]
    if flag == "--recorded-on":
        base[0] = ddp(Made(), steps=1).write(tmp_path / "rank0.json")
    outcome = collsim(*command.split(), *base, *BESIDE.get(flag, ()), flag, wrong)
    refused(outcome)
    assert any(f"error: {each}" in outcome.err for each in spellings)
    assert f'did you mean "{right}' in outcome.err, outcome.err


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("run --topo hgx_h100 --op all_reduce --nodes 2 --set scale_out.network=ib", "infiniband"),
        ("run --topo hgx_h100 --op all_reduce --nodes 2 --set scale_out.fabric=fattree", "fat_tree"),
        ("run --topo hgx_h100 --op all_reduce --env NCCL_ALGO=Rng", "ring"),
        ("run --topo hgx_h100 --op all_reduce --fail switch:nwsv1", "nvsw1"),
        ("run --topo hgx_h100 --op all_reduce --degrade gpu:gup1=50%", "gpu1"),
        ("compare hgx_h10 hgx_b200 --op all_reduce", "hgx_h100"),
        ("topo show hgx_h10", "hgx_h100"),
        ("topo draw hgx_h10", "hgx_h100"),
        ("run --topo hgx_h100 --opp all_reduce", "--op"),
    ],
)
def test_parts_of_values_and_words_without_a_flag_too(collsim, command, right):
    outcome = collsim(*command.split())
    refused(outcome)
    assert f'did you mean "{right}"' in outcome.err, outcome.err
