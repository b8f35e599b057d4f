"""Names in any case, arrays for lists, and values that name nothing or something twice."""

import numpy as np
import pytest

from collsim import simulate
from collsim.core.errors import InputError

BOARD = "mi355x_ubb8"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"algo": "Ring"}, {"algo": "ring"}),
        ({"algo": ["ALL_PAIRS", "Ring"]}, {"algo": ["all_pairs", "ring"]}),
        ({"algo": "AUTO"}, {"algo": "auto"}),
        ({"algo": "ring", "proto": "simple"}, {"algo": "ring", "proto": "Simple"}),
        ({"algo": "ring", "proto": "ll"}, {"algo": "ring", "proto": "LL"}),
        ({"launch": "Graph"}, {"launch": "graph"}),
        ({"redop": "MAX"}, {"redop": "max"}),
        ({"overrides": np.array(["link.latency=2 us", "gpu.count=4"])},
         {"overrides": ["link.latency=2 us", "gpu.count=4"]}),
        ({"load": np.array(["link:gpu0->gpu1=30%", "link:gpu1->gpu0=10%"])},
         {"load": ["link:gpu0->gpu1=30%", "link:gpu1->gpu0=10%"]}),
        ({"placement": np.array("cyclic")}, {"placement": "cyclic"}),
    ],
)  # fmt: skip
def test_spellings_of_one_request(given, meant):
    one, other = (simulate(BOARD, "all_reduce", "1M", **asked) for asked in (given, meant))
    assert [(row.algo, row.proto, row.time_s) for row in one] == [(row.algo, row.proto, row.time_s) for row in other]
    assert one.config == other.config


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"dtype": ""}, ["dtype", 'unknown data type ""']),
        ({"groups": "tp=2,dp=4", "over": "tp,tp"}, ["over", 'dimension "tp" is named 2 times']),
        ({"placement": np.array(["block", "cyclic"])}, ["placement", "is not a name"]),
        ({"load": np.array(["link:*=30%", "gpu0"])}, ["load", '"gpu0"']),
    ],
)
def test_what_names_nothing(asked, words):
    with pytest.raises(InputError) as caught:
        simulate(BOARD, "all_reduce", "1M", **asked)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("algo", ["auto", "best", "all"])
def test_choices_on_a_large_domain_without_a_library(algo):
    from collsim.topology import parse_topology

    text = (
        "schema: collsim.topology/1\nbuilder: switched\ngpu: {count: 513}\nlink: {bandwidth: 50 GB/s, latency: 1 us}\n"
    )
    topology = parse_topology(f"{text}switch: {{planes: 1, links_per_plane: 1}}\n")
    rows = simulate(topology, "all_reduce", "16M", algo=algo).rows
    assert [row.algo for row in rows] == ["ring"]
