"""Where ranks run, and background traffic: host files and patterns of links."""

import pytest

from collsim.background import free_shares, parse_load, parse_loads
from collsim.errors import InputError
from collsim.placement import placed

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
