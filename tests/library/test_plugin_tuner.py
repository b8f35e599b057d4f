"""What clouds decide: AWS's plug-in by variables, the latency that it tells and its tuner's choices (aws-ofi-nccl src),
Google by the variables of its documentation.
"""

import pytest

import collsim
from collsim.core.errors import InputError
from collsim.library.calls import Call
from collsim.library.choice import choose
from collsim.library.environment import read_environment
from collsim.library.nccl.plugin_tuner import _told
from collsim.library.system import system_of
from collsim.topology import load_topology

MIB = 2**20


def system(topo="hgx_b200", nodes=4, network="efa"):
    return system_of(load_topology(topo, {"scale_out.nodes": str(nodes), "scale_out.network": network}))


def chosen(size, op="all_reduce", nodes=4, system_=None, library="nccl-2.27", **variables):
    call = Call(op, 8 * nodes, size, n_nodes=nodes)
    found = choose(call, system_ or system(nodes=nodes), library, read_environment(variables))
    return found.algo, found.proto


@pytest.mark.parametrize(
    ("mib", "expected"),
    [
        (0.25, ("tree", "LL")),
        (17, ("tree", "LL128")),
        (18, ("ring", "LL128")),
        (127, ("ring", "LL128")),
        (128, ("nvls_tree", "Simple")),
        (415, ("nvls_tree", "Simple")),
        (416, ("ring", "Simple")),
    ],
)
def test_all_reduces_of_four_b200_nodes(mib, expected):
    """Of 32 ranks lines are at 393216, 18350080, 133693440 and 435159040 bytes."""
    assert chosen(int(mib * MIB)) == expected


def test_between_points_lines_are_straight_in_logarithms():
    """Of 48 ranks tree/LL128 ends at 18350080 (40370176 / 18350080) ** log2(1.5) = 29100000 bytes."""
    assert chosen(29_090_000, nodes=6) == ("tree", "LL128")
    assert chosen(29_110_000, nodes=6) != ("tree", "LL128")


def test_two_nodes_other_networks_and_older_libraries_are_left_to_nccl():
    own = chosen(64 * MIB, OFI_NCCL_TUNER_TYPE="Internal")
    assert own != chosen(64 * MIB)
    assert own == chosen(64 * MIB, system_=system(network="infiniband"))
    assert chosen(MIB, op="all_gather", nodes=2) == chosen(
        MIB, op="all_gather", nodes=2, OFI_NCCL_TUNER_TYPE="Internal"
    )
    old = {"library": "nccl-2.18", "system_": system("hgx_h100")}
    assert chosen(64 * MIB, **old) == chosen(64 * MIB, **old, OFI_NCCL_TUNER_TYPE="Internal")


def test_variables_go_before_the_plugin():
    assert chosen(64 * MIB, NCCL_ALGO="Tree")[0] == "tree"
    assert chosen(64 * MIB, NCCL_PROTO="^LL128")[1] != "LL128"


def test_each_generation_has_choices_of_its_own():
    found = {topo: chosen(40 * MIB, system_=system(topo)) for topo in ("hgx_h100", "hgx_h200", "hgx_b200", "hgx_b300")}
    assert found == {
        "hgx_h100": ("ring", "LL128"),
        "hgx_h200": ("ring", "LL128"),
        "hgx_b200": ("ring", "LL128"),
        "hgx_b300": ("tree", "LL128"),
    }
    assert chosen(100 * MIB, op="all_gather") == ("ring", "LL128")


def chunk(size, library="nccl-2.27", network="efa", **variables):
    call = Call("all_reduce", 64, size, n_nodes=8)
    variables |= {"NCCL_ALGO": "NVLSTree", "OFI_NCCL_TUNER_TYPE": "Internal"}
    return choose(call, system("hgx_h100", 8, network), library, read_environment(variables)).chunk_bytes


def test_the_plugin_lets_nvls_trees_have_longer_chunks_unless_the_user_says_otherwise():
    assert chunk(16 * 2**30) == 512 * 2**10
    assert chunk(16 * 2**30, network="infiniband") == 64 * 2**10
    assert chunk(16 * 2**30, library="nccl-2.19") == 64 * 2**10
    assert chunk(16 * 2**30, NCCL_NVLSTREE_MAX_CHUNKSIZE="131072") == 128 * 2**10


def test_the_latency_that_the_plugin_tells_keeps_nvls_trees_from_calls_of_middle_size():
    """On two p5 it is 75 us a hop, twice with Simple: the trees of NVLS say 25 + 2 (14 + 150) us before any byte."""
    assert chosen(4 * MIB, nodes=2, system_=system("hgx_h100", 2)) == ("tree", "LL128")
    assert chosen(4 * MIB, nodes=2, system_=system("hgx_h100", 2, "infiniband")) == ("nvls_tree", "Simple")
    assert chosen(256 * MIB, nodes=2, system_=system("hgx_h100", 2)) == ("nvls_tree", "Simple")
    latencies = {
        network: next(
            row.latency_s
            for row in choose(
                Call("all_reduce", 16, MIB, n_nodes=2), system("hgx_h100", 2, network), "nccl-2.27",
                read_environment({}),
            ).candidates
            if row.algo == "nvls_tree"
        )
        for network in ("efa", "infiniband")
    }  # fmt: skip
    assert latencies["efa"] - latencies["infiniband"] == pytest.approx(2 * 150e-6)


def test_a_rack_is_no_such_instance():
    assert system("gb200_nvl72", 3).instance == ""
    assert system("hgx_b200", 4).instance == "p6-b200"


def test_lines_rise_in_ranks_and_have_a_library_s_words():
    for ops in _told()["instances"].values():
        for entries in ops.values():
            for entry in entries:
                assert entry["algo"] in ("ring", "tree", "nvls_tree")
                assert entry["proto"] in ("LL", "LL128", "Simple")
                for name in {"from", "until"} & set(entry):
                    ranks = [point[0] for point in entry[name]]
                    assert ranks == sorted(set(ranks))


def test_a_run_says_how_many_calls_the_plugin_chose():
    topology = load_topology("hgx_b200", {"scale_out.nodes": "4", "scale_out.network": "efa"})

    def told(algo="auto", **variables):
        asked = collsim.simulate(topology, "all_reduce", ["64K", "64M"], algo=algo, environment=variables)
        return [text for text in asked.warnings if "plug-in" in text]

    (sentence,) = told()
    assert sentence.startswith("in 2 of 2 calls the tuner of AWS's plug-in chose, as on p6-b200")
    assert told(OFI_NCCL_TUNER_TYPE="Internal") == []
    assert told(algo="ring") == []


@pytest.mark.parametrize("size", [8, 64 * 2**10, MIB, 64 * MIB, 2**30])
@pytest.mark.parametrize(
    ("network", "op", "expected"),
    [
        ("tcpx", "all_reduce", {("ring", "Simple")}),
        ("tcpx", "all_gather", {("ring", "Simple")}),
        ("tcpxo", "all_gather", {("ring", "Simple")}),
        ("tcpxo", "all_reduce", {("ring", "Simple"), ("tree", "Simple")}),
    ],
)
def test_google_s_networks_have_simple_alone_and_no_nvls(network, op, expected, size):
    assert chosen(size, op, 2, system("hgx_h100", 2, network)) in expected


def test_variables_of_the_user_go_before_those_of_a_cloud_s_documentation():
    mega = system("hgx_h100", 2, "tcpxo")
    assert chosen(2**30, nodes=2, system_=mega, NCCL_ALGO="Ring")[0] == "ring"
    assert chosen(8, nodes=2, system_=mega, NCCL_PROTO="LL128")[1] == "LL128"
    call, large = Call("all_reduce", 16, 2**30, n_nodes=2), read_environment({"NCCL_BUFFSIZE": 2**20})
    chunks = {
        network: choose(call, system("hgx_h100", 2, network), "nccl-2.27", read_environment({})).chunk_bytes
        for network in ("tcpx", "tcpxo")
    }
    assert chunks["tcpxo"] == 2 * chunks["tcpx"]  # buffers of 8 and 4 MiB
    assert choose(call, mega, "nccl-2.27", large).chunk_bytes * 8 == chunks["tcpxo"]


def test_a_run_says_what_a_cloud_s_documentation_sets():
    asked = {"op": "all_reduce", "size": "64K", "nodes": 2, "network": "tcpx"}

    def told(**more):
        return [text for text in collsim.simulate("hgx_h100", **asked, **more).warnings if "Google" in text]

    (sentence,) = told()
    assert sentence.startswith("over tcpx NCCL has what Google's documentation sets: NCCL_ALGO=Ring NCCL_PROTO=Simple")
    (less,) = told(environment={"NCCL_ALGO": "Tree"})
    assert "NCCL_ALGO" not in less
    assert "NCCL_PROTO=Simple" in less
    assert told(algo="ring") == []


def test_variables_of_google_s_plug_ins_are_told_to_do_nothing_here():
    names = ("NCCL_FASTRAK_NUM_FLOWS", "NCCL_GPUDIRECTTCPX_CTRL_DEV", "NCCL_DYNAMIC_CHUNK_SIZE")
    read = read_environment(dict.fromkeys(names, "2"))
    assert [text.partition(" ")[0] for text in read.warnings] == list(names)


def test_an_unknown_tuner_is_refused():
    with pytest.raises(InputError, match="no tuner that is modelled"):
        read_environment({"OFI_NCCL_TUNER_TYPE": "Mine"})
