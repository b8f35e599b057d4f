"""Where ranks run, and background traffic: host files and patterns of links."""

import pytest

from collsim.core.errors import InputError
from collsim.core.slurm import hosts_in, read_leaves
from collsim.simulation.request.loads import free_shares, parse_load, parse_loads
from collsim.simulation.request.placement import placed

CLUSTER = [f"n{node}.gpu{gpu}" for node in range(3) for gpu in range(2)]
LINKS = ["gpu0->s0", "gpu0->s1", "gpu1->s0", "s0->gpu0", "s1->gpu0", "s0->gpu1"]


def faults_of(call):
    with pytest.raises(InputError) as caught:
        call()
    return caught.value.faults


@pytest.fixture
def host_file(tmp_path):
    def write(text):
        file = tmp_path / "hosts"
        file.write_text(text)
        return str(file)

    return write


def test_block_and_cyclic():
    assert placed("block", CLUSTER) == [0, 1, 2, 3, 4, 5]
    assert placed("cyclic", CLUSTER) == [0, 2, 4, 1, 3, 5]
    assert placed("cyclic", ["a.gpu0", "a.gpu1", "a.gpu2", "b.gpu0"]) == [0, 3, 1, 2]
    assert placed("cyclic", ["gpu0", "gpu1", "gpu2"]) == [0, 1, 2]  # one domain is one node


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("n2\nn0\n", [4, 5, 0, 1]),
        ("n2 slots=1  # the last\n\nn0 slots=2\nn2 slots=1", [4, 0, 1, 5]),
        ("n1:1\nn0:2", [2, 0, 1]),
        ("n1.gpu1\nn0.gpu0", [3, 0]),
        ("rack7-a slots=2\nrack7-b slots=2", [0, 1, 2, 3]),  # names of a real cluster: nodes in the order they come
        ("rack7-b\nrack7-a\nrack7-b\nrack7-a", [0, 2, 1, 3]),  # one line per rank
    ],
)
def test_host_files(host_file, text, order):
    assert placed(host_file(text), CLUSTER) == order


def test_gpus_of_one_domain_are_named(host_file):
    assert placed(host_file("gpu2\ngpu0"), ["gpu0", "gpu1", "gpu2"]) == [2, 0]


@pytest.mark.parametrize(
    ("text", "places", "words"),
    [
        ("", [""], ["names no host"]),
        ("n0 slots=x\nn1 two", [":1", ":2"], ["slots=x", "n1 two"]),
        ("n0 slots=3\nn9", [":1", ":2"], ["3 slots on n0, which has 2", 'no host or GPU "n9"']),
        ("n0.gpu1\nn0.gpu1", [":2"], ["named twice"]),
        ("a\nb\nc\nd", [":4"], ['no host or GPU "d"']),
    ],
)
def test_faults_of_host_files(host_file, text, places, words):
    file = host_file(text)
    faults = faults_of(lambda: placed(file, CLUSTER))
    assert [fault.where for fault in faults] == [file + place for place in places]
    for fault, word in zip(faults, words, strict=True):
        assert word in fault.what


@pytest.mark.parametrize("placement", ["nowhere", 3])
def test_a_placement_that_is_none(placement):
    (fault,) = faults_of(lambda: placed(placement, CLUSTER))
    assert fault.where == "placement"


def test_loads_by_direction_and_pattern():
    shares = lambda *texts: free_shares(parse_loads(texts), LINKS)  # noqa: E731
    assert shares("link:gpu0->s0=30%") == [0.7, 1, 1, 1, 1, 1]
    assert shares("link:gpu0-s0=25%") == shares("link:s0-gpu0=25%") == [0.75, 1, 1, 0.75, 1, 1]
    assert shares("link:gpu0->*=50%", "link:*->s0=25%") == [0.25, 0.5, 0.75, 1, 1, 1]
    assert shares("link:*=12.5%") == [0.875] * 6


@pytest.mark.parametrize("text", ["", "gpu0->s0=30%", "link:gpu0->s0", "link:gpu0->s0=0.3", "link:=3%", 5])
def test_texts_that_are_no_loads(text):
    (fault,) = faults_of(lambda: parse_load(text))
    assert (fault.where, "is not a load" in fault.what) == ("load", True)


def test_loads_that_leave_nothing_or_are_nowhere():
    assert [fault.what for fault in faults_of(lambda: parse_loads(["link:a=0%", "link:a=100%"]))] == [
        "a load of 0 %", "a load of 100 %",
    ]  # fmt: skip
    twice = parse_loads(["link:gpu0->s0=60%", "link:*->s0=40%", "link:gpu7->s0=1%"])
    absent, full = faults_of(lambda: free_shares(twice, LINKS))
    assert absent.what == 'no link is called "gpu7->s0"'
    assert full.what == "loads take all of 1 links, such as gpu0->s0"
    assert parse_load("link:gpu0-s*=12.5%").text == "link:gpu0-s*=12.5%"


SPREAD = [f"n{node}.gpu{gpu}" for node in range(6) for gpu in range(2)]
PODS = [node // 2 for node in range(6) for _ in range(2)]  # nodes 0 and 1 share leaves, 2 and 3, 4 and 5
TREE = """
# the tops come first
SwitchName=core Switches=s[1-2] LinkSpeed=100
switchname=s1 \\
    Switches=leaf1,leaf3
SwitchName=s2 Switches=leaf2
SwitchName=leaf1 Nodes=a[08-09]
SwitchName=leaf2 Nodes=b1
SwitchName=leaf3 Nodes=c[1,3]
"""


@pytest.fixture
def tree(tmp_path):
    file = tmp_path / "topology.conf"
    file.write_text(TREE)
    return str(file)


def nodes_of(order):
    return [SPREAD[gpu].partition(".")[0] for gpu in order[::2]]


def test_leaves_are_read_from_left_to_right(tree):
    assert read_leaves(tree) == {"leaf1": ["a08", "a09"], "leaf3": ["c1", "c3"], "leaf2": ["b1"]}


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [
        ("", ["n0", "n1", "n2", "n3", "n4"]),
        (":a08,a09", ["n0", "n1"]),
        (":a08,c1", ["n0", "n2"]),  # two leaves
        (":c[1,3],b1", ["n0", "n1", "n2"]),  # no leaf1: the first block is free
        (":b1,a[08-09],c3", ["n4", "n0", "n1", "n2"]),  # ranks in the order of the list
    ],
)
def test_hosts_of_a_leaf_share_leaves(tree, hosts, nodes):
    order = placed(f"slurm:{tree}{hosts}", SPREAD, PODS)
    assert nodes_of(order) == nodes
    assert order[1::2] == [gpu + 1 for gpu in order[::2]]


@pytest.mark.parametrize(("text", "order"), [("c1 slots=1\nb1:2", [0, 4, 5]), ("b1\na08\nb1", [4, 0, 5])])
def test_host_file_of_slurm_hosts(tree, host_file, text, order):
    assert placed(f"slurm:{tree}:@{host_file(text)}", SPREAD, PODS) == order


def test_blocks_are_racks_where_nodes_are(host_file):
    racks = [f"n{rack}.gpu{gpu}" for rack in range(2) for gpu in range(18)]
    file = host_file("BlockName=b1 Nodes=t[1-6]\nBlockName=b2 Nodes=t[7-9]\nBlockSizes=3,6")
    order = placed(f"slurm:{file}:t[8,2]", racks, [0] * 36)
    assert order == [*range(18 + 6, 18 + 12), *range(3, 6)]
    (fault,) = faults_of(lambda: placed(f"slurm:{host_file('BlockName=b Nodes=t[1-4]')}", racks, [0] * 36))
    assert "18 GPUs of a rack are no equal share for each of the 4 hosts" in fault.what


def test_hosts_without_a_place(tree, host_file):
    (fault,) = faults_of(lambda: placed(f"slurm:{tree}:a08,a10", SPREAD, PODS))
    assert (fault.what.split(" is ")[0], fault.hint) == ('"a10"', 'did you mean "a09"?')
    wide = host_file("SwitchName=s Nodes=x[1-3]\nSwitchName=t Nodes=y[1-2]")
    (fault,) = faults_of(lambda: placed(f"slurm:{wide}", SPREAD, PODS))
    assert 'for the 3 hosts on "s"' in fault.what
    assert "2 nodes" in fault.hint
    lines = [f"SwitchName=s{i} Nodes=x{i}" for i in range(5)]
    many = host_file("\n".join(lines))
    assert [fault.what[-4:] for fault in faults_of(lambda: placed(f"slurm:{many}", SPREAD, PODS))] == ['"s3"', '"s4"']
    (fault,) = faults_of(lambda: placed(f"slurm:{tree}", CLUSTER))
    assert "no leaves" in fault.what


@pytest.mark.parametrize(
    ("text", "lines", "words"),
    [
        ("", [""], ["no host"]),
        ("SwitchNme=a Nodes=b\nSwitchName=c", [":1", ":2"], ["SwitchNme=a", "does not name one"]),
        ("SwitchName=a Nodes=b[3-1]\nBlockName=c Nodes=d[1", [":1", ":2"], ["[3-1]", "not a list"]),
        ("SwitchName=a Nodes=x\nSwitchName=a Nodes=y", [":2"], ["on line 1"]),
        ("SwitchName=a Nodes=x\nSwitchName=b Nodes=x", [":2"], ['on "a" already']),
        ("SwitchName=a Nodes=x\nSwitchName=b Switches=aa\nSwitchName=c Switches=d\nSwitchName=d Switches=c",
         [":2", ":3", ":4"], ['no switch "aa"', "below itself", "below itself"]),
        ("SwitchName=a Nodes=x\nSwitchName=b Switches=a\nSwitchName=c Switches=a", [":3"], ['below "b" already']),
    ],
)  # fmt: skip
def test_faults_of_topology_files(host_file, text, lines, words):
    file = host_file(text)
    faults = faults_of(lambda: read_leaves(file))
    assert [fault.where for fault in faults] == [file + line for line in lines]
    for fault, word in zip(faults, words, strict=True):
        assert word in fault.what


@pytest.mark.parametrize("text", ["", "a,,b", "a[1-2", "a[]", "a[x]", "a[1-99999999]", "a b", "a[1-999][1-9999]"])
def test_texts_that_list_no_hosts(text):
    (fault,) = faults_of(lambda: hosts_in(text, "here"))
    assert fault.where == "here"
