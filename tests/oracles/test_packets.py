"""The packet model by itself, on cases that can be counted by hand: 1 B/s, packets of 1 byte, latencies in seconds."""

from collections import Counter
from itertools import accumulate

import pytest

from .packets import Link, Message, Network, dealt


def arrivals(links, messages, **options):
    network = Network(links, messages, **{"packet_bytes": 1, "buffer_bytes": 8, **options})
    found = network.run()
    assert not any(any(port.taken.values()) for port in network.ports.values())  # every credit came back
    return found


def along(size_bytes, *links, after=()):
    return Message(size_bytes, [(links, 1.0)], after)


@pytest.mark.parametrize(("cut_through", "expected"), [(True, 100 + 0.5 + 0.25), (False, 100 + 0.5 + 1 + 0.25)])
def test_one_message_over_two_links(cut_through, expected):
    links = [Link(1.0, 0.5), Link(1.0, 0.25)]
    assert arrivals(links, [along(100, 0, 1)], cut_through=cut_through) == [expected]


@pytest.mark.parametrize("rates", [(1.0, 4.0), (4.0, 1.0)])
def test_the_narrowest_link_decides(rates):
    """Cut through or not, a fast link behind a slow one is never ahead of the bits that arrive."""
    links = [Link(rate, 0.5) for rate in rates]
    assert arrivals(links, [along(100, 0, 1)]) == [pytest.approx(101)]


def test_the_last_packet_is_shorter():
    assert arrivals([Link(2.0, 1.0)], [along(25, 0)], packet_bytes=10, buffer_bytes=80) == [13.5]


@pytest.mark.parametrize(("places", "per_packet_s"), [(1, 7.0), (2, 3.5), (3, 7 / 3), (7, 1.0), (20, 1.0)])
def test_credits_must_cover_the_round_trip(places, per_packet_s):
    """A place is free again after 3 s there, 1 s on the next link and 3 s for the credit back."""
    found = arrivals([Link(1.0, 3.0), Link(1.0, 0.0)], [along(420, 0, 1)], buffer_bytes=places)
    assert found == [pytest.approx(420 * per_packet_s, rel=0.01)]


def test_no_buffer_overflows():
    links = [Link(1.0, 1.0), Link(1.0, 1.0), Link(0.25, 0.0)]
    network = Network(links, [along(50, 0, 2), along(50, 1, 2)], packet_bytes=1, buffer_bytes=5)
    most = 0
    network.start(0)
    network.start(1)
    while network.env.peek() < float("inf"):
        network.env.step()
        most = max(most, *(taken for port in network.ports.values() for taken in port.taken.values()))
    assert most == 5
    assert max(network.finish_s) == pytest.approx(401)


def three_and_one(queues):
    """Messages 0 to 2 come by one input, message 3 by another, all to one output."""
    links = [*(Link(4.0, 0.0) for _ in range(3)), Link(4.0, 0.0), Link(4.0, 0.0), Link(1.0, 0.0)]
    messages = [*(along(300, sender, 4, 5) for sender in range(3)), along(300, 3, 5)]
    return arrivals(links, messages, queues=queues)


def test_inputs_take_turns():
    found = three_and_one("port")
    assert found[3] == pytest.approx(600, rel=0.02)
    assert max(found) == 1200


def test_messages_take_turns():
    assert three_and_one("flow") == [pytest.approx(1200, rel=0.02)] * 4


@pytest.mark.parametrize("queues", ["port", "flow"])
def test_a_sender_serves_its_messages_in_turn(queues):
    found = arrivals([Link(1.0, 0.0)], [along(10, 0), along(20, 0)], queues=queues)
    assert found == [19.0, 30.0]


def test_messages_wait_for_those_before():
    messages = [along(10, 0), along(5, 1), Message(0, (), (0, 1)), along(3, 1, after=(2,)), Message(0, ())]
    assert arrivals([Link(1.0, 2.0), Link(1.0, 0.0)], messages) == [12.0, 5.0, 12.0, 15.0, 0.0]


def test_messages_that_wait_for_each_other_are_an_error():
    with pytest.raises(RuntimeError, match="2 messages never arrive, the first of them is 1"):
        arrivals([Link(1.0, 0.0)], [along(1, 0), along(1, 0, after=(2,)), along(1, 0, after=(1,))])


def test_full_buffers_around_a_circle_are_a_deadlock():
    """Nothing is lost for want of a place, so a circle of waits for places never ends, unless each has its own."""
    links = [Link(1.0, 0.0) for _ in range(4)]
    messages = [along(50, *((first + hop) % 4 for hop in range(3))) for first in range(4)]
    with pytest.raises(RuntimeError, match="4 messages never arrive"):
        arrivals(links, messages, buffer_bytes=2)
    assert max(arrivals(links, messages, buffer_bytes=2, queues="flow")) == pytest.approx(150, rel=0.05)


def test_packets_are_dealt_in_proportion_all_the_time():
    shares = [5 / 18, 4 / 18, 4 / 18, 5 / 18]
    ways = list(dealt(shares, 180))
    assert Counter(ways) == {0: 50, 1: 40, 2: 40, 3: 50}
    for way, share in enumerate(shares):
        given = accumulate(one == way for one in ways)
        assert all(abs(count - share * (place + 1)) <= 1 for place, count in enumerate(given))


def test_a_sprayed_message_uses_all_ways():
    ways = [((0, 2), 0.5), ((1, 3), 0.5)]
    assert arrivals([Link(1.0, 0.0)] * 4, [Message(100, ways)]) == [50.0]
