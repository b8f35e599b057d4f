"""What a profile does to a prediction: the library it follows, ways to launch, intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collsim import simulate
from collsim.core.errors import InputError
from collsim.library import Scatter, load_profile
from collsim.topology import load_topology

H100 = "hgx_h100"


def time_s(op="all_reduce", size="64K", topo=H100, **more):
    return simulate(topo, op, size, **more).rows[0].time_s


def test_auto_follows_the_library_of_the_profile():
    result = simulate(H100, "all_reduce", ["64K", "64M"])
    named = simulate(H100, "all_reduce", ["64K", "64M"], library="nccl-2.28")
    assert result.profile["library"] == "nccl-2.28" == load_profile(H100).library
    assert result.rows == named.rows
    assert [(row.algo, row.proto) for row in result] == [("ring", "LL"), ("nvls", "Simple")]
    assert simulate("mi300x_ubb8", "all_reduce", "1M").profile["library"] == "rccl-2.22"


def test_another_library_or_a_variable_goes_before():
    older = simulate(H100, "all_reduce", "64M", library="nccl-2.18")
    assert older.profile["library"] == "nccl-2.18"
    ring = simulate(H100, "all_reduce", "64M", environment={"NCCL_ALGO": "Ring"})
    assert ring.rows[0].algo == "ring"


def test_a_library_that_does_not_run_there_is_told_and_the_fastest_taken():
    result = simulate("mi355x_ubb8", "all_reduce", ["64K", "64M"], profile=H100)
    best = simulate("mi355x_ubb8", "all_reduce", ["64K", "64M"], profile=H100, algo="best")
    assert result.profile["library"] is None
    assert [row.time_s for row in result] == [row.time_s for row in best]
    assert all(row.time_lo_s is None for row in result)
    assert any(text.endswith("nccl-2.28 does not run on mi355x_ubb8") for text in result.warnings)
    assert not any("name one, such as" in text for text in result.warnings)  # it would be refused


def test_a_named_algorithm_needs_no_library():
    result = simulate(H100, "all_reduce", "1M", algo="ring")
    assert result.profile["library"] is None
    assert result.rows[0].time_lo_s is None  # nobody measured what the library would not do


def test_what_no_library_runs_on_is_told():
    result = simulate("mi400_ualoe72", "all_reduce", "1M", ranks=8, profile=H100)
    assert any(text.startswith("auto is the fastest in the simulator: ") for text in result.warnings)


def test_a_replayed_graph_is_quicker_where_the_launch_counts():
    profile = load_profile(H100)
    graph = profile.launched("graph")
    assert graph is not profile
    assert time_s(launch="graph") < time_s()
    assert time_s(size="256") >= profile.floor_s
    assert time_s(size="256", launch="graph") >= graph.floor_s


def test_large_calls_hardly_notice_the_launch():
    graph, stream = (time_s(size="4G", launch=launch) for launch in ("graph", "stream"))
    assert graph == pytest.approx(stream, rel=0.1)


def test_registered_buffers_need_no_copy():
    plain, registered = (time_s("send_recv", "256M", registered=flag) for flag in (False, True))
    assert registered < plain
    ring, fewer = (time_s("broadcast", "256M", registered=flag) for flag in (False, True))
    assert 1 < fewer / ring < 24 / 16  # nothing is copied out, but on 16 channels instead of 24


def test_launches_that_nobody_measured_are_told():
    bare = replace(load_profile(H100), launches={})
    warnings = simulate(H100, "all_reduce", "64K", profile=bare, launch="graph").warnings
    assert any("knows nothing of graph launches" in text for text in warnings)
    assert time_s(profile=bare, launch="graph") == time_s(profile=bare)
    assert not any("knows nothing" in text for text in simulate(H100, "all_reduce", "64K", launch="graph").warnings)


def test_one_thread_for_all_gpus_is_slower_where_the_launch_counts():
    """The last of eight GPUs starts 7 launches after the first; long calls hide that in part."""
    wait_s = 7 * load_profile(H100).thread_launch_s
    alone, together = (time_s(size="256", gpus_per_thread=count) for count in (1, 8))
    assert max(wait_s, alone) < together <= wait_s + alone
    several = [time_s(size="256", gpus_per_thread=count) for count in (1, 2, 4, 8)]
    assert several == sorted(several)
    alone, together = (time_s(size="4G", gpus_per_thread=count) for count in (1, 8))
    assert together == pytest.approx(alone, rel=0.01)


def test_no_thread_starts_more_gpus_than_there_are():
    (two, few), (same, all_of_them) = [
        [row.time_s for row in simulate(H100, "all_reduce", "256", ranks=[2, 8], gpus_per_thread=count)]
        for count in (2, 8)
    ]
    assert two == same
    assert few < all_of_them
    with pytest.raises(InputError, match="9 GPUs per thread, but hgx_h100 has 8"):
        simulate(H100, "all_reduce", "256", gpus_per_thread=9)


def test_an_interval_is_the_scatter_around_the_time():
    row = simulate(H100, "all_reduce", "64K", environment={"NCCL_ALGO": "Ring"}).rows[0]
    scatter = load_profile(H100).scatter("ring", 2**16)
    assert row.time_lo_s == pytest.approx(row.time_s * scatter.low)
    assert row.time_hi_s == pytest.approx(row.time_s * scatter.high)


@pytest.mark.parametrize(
    ("op", "ops", "logs", "times"),
    [
        ("all_gather", ("all_reduce",), 2, 2),  # seen in no log
        ("all_gather", ("all_gather", "all_reduce"), 2, 1),
        ("all_gather", ("all_reduce",), 5, 1),  # logs enough to tell how far rings are off
        ("all_gather", (), 2, 1),  # nobody says which
        ("all_to_all_v", ("all_to_all",), 2, 1),  # messages all the same
    ],
)
def test_an_operation_that_few_logs_lack_has_a_wider_interval(op, ops, logs, times):
    scatter = Scatter(0.9, 1.25, 0.05, 0.1, 20, logs, ops=ops)
    family = "messages" if "to_all" in op else "ring"
    profile = replace(load_profile(H100), accuracy={family: {"large": scatter}})
    matrix = np.full((8, 8), 2**23) if op.endswith("_v") else None
    row = simulate(H100, op, None if op.endswith("_v") else "64M", matrix=matrix, profile=profile).rows[0]
    assert row.time_hi_s == pytest.approx(row.time_s * 1.25**times)
    assert row.wide_because == ""


def test_why_an_interval_is_wide_names_the_operation():
    scatter = Scatter(0.5, 2.0, 0.05, 0.1, 20, 2, ops=("all_reduce",))
    profile = replace(load_profile(H100), accuracy={"ring": {"large": scatter}})
    row = simulate(H100, "all_gather", "64M", profile=profile).rows[0]
    assert row.time_hi_s == pytest.approx(row.time_s * 4)
    assert row.wide_because.startswith("none of the few logs holds this operation")


def test_no_end_of_an_interval_is_below_the_bound():
    profile = load_profile(H100)
    wide = replace(profile, accuracy={"nvls": {"large": Scatter(1e-3, 1.5, 0.1, 0.2, 30, 3)}})
    row = simulate(H100, "all_reduce", "1G", profile=wide).rows[0]
    assert row.time_lo_s == row.lower_bound_s


@pytest.mark.parametrize("forced", [{"channels": 4}, {"chunk": "1M"}, {"proto": "LL"}])
def test_what_the_library_would_not_do_has_no_interval(forced):
    row = simulate(H100, "all_reduce", "64M", **forced).rows[0]
    assert (row.time_lo_s, row.time_hi_s) == (None, None)


@pytest.mark.parametrize(
    ("topo", "reach", "told"),
    [("hgx_h20", 2, "is derived, not measured"), ("hgx_h200", 1, "is derived, checked against 17 logs of two H200")],
)
def test_a_derived_profile_says_so_and_is_less_sure_unless_it_was_checked(topo, reach, told):
    result, base = (simulate(name, "all_reduce", "64M") for name in (topo, H100))
    assert result.profile["derived"]
    assert not result.profile["calibrated"]
    (warning,) = (text for text in result.warnings if told in text)
    assert warning.count(": ") == 1
    one, other = (found.rows[0].time_hi_s / found.rows[0].time_s for found in (base, result))
    assert other == pytest.approx(one**reach)


@pytest.mark.parametrize(
    ("topo", "op", "algo"),
    [(H100, "all_reduce", "ring"), ("mi300x_ubb8", "all_reduce", "ring"), (H100, "gather", "direct"),
     (H100, "broadcast", "ring"), ("mi300x_ubb8", "gather", "direct")],
)  # fmt: skip
def test_a_library_is_asked_for_where_naming_it_changes_what_runs(topo, op, algo):
    """The profile's own, with its flag; where it starts the same kernels at the same cost, nothing is said."""
    unnamed = simulate(topo, op, "16K", algo=algo)
    library = load_profile("auto", load_topology(topo)).library
    named = simulate(topo, op, "16K", algo=algo, library=library)
    told = [text for text in unnamed.warnings if "add --library" in text]
    assert bool(told) == (unnamed.rows[0].time_s > 1.01 * named.rows[0].time_s)
    assert all(f'add --library {library}, in Python library="{library}"' in text for text in told)
    assert not any("add --library" in text for text in named.warnings)


def test_a_protocol_without_constants_is_no_line_rate_and_told():
    """RCCL's messages have no constants of LL128 in this profile, nor has the direct all-to-all."""
    asked = {"algo": "pairwise", "channels": 4}
    told = simulate("mi300x_ubb8", "all_to_all", "64M", proto="LL128", **asked)
    simple = simulate("mi300x_ubb8", "all_to_all", "64M", proto="Simple", **asked)
    assert told.rows[0].time_s == simple.rows[0].time_s
    assert any("no constants of messages with LL128: those of messages with Simple" in text for text in told.warnings)
    assert not any("no constants" in text for text in simple.warnings)


def test_a_kernel_without_constants_is_no_line_rate_and_told():
    result = simulate(H100, "all_reduce", "1G", profile="mi300x_ubb8", algo="nvls", library="nccl-2.28")
    assert result.rows[0].time_s > 1.3 * result.rows[0].lower_bound_s
    assert any("no constants of nvls with Simple: those of ring with Simple" in text for text in result.warnings)


def test_figures_of_every_kernel_go_before_those_of_another():
    profile = load_profile("mi300x_ubb8")
    assert profile.protocol("LL128", "messages") == profile.protocol("Simple", "messages")
    plain = replace(profile, channel_rate_Bps=1e9)
    assert plain.protocol("LL128", "messages").channel_rate_Bps == 1e9


@pytest.mark.parametrize(
    ("op", "asked", "has"),
    [
        ("all_to_all", {"proto": "LL128"}, "LL and Simple"),
        ("all_reduce", {"proto": "LL", "environment": {"NCCL_ALGO": "NVLS"}}, "Simple"),
        ("all_reduce", {"proto": "LL", "algo": "nvls"}, "Simple"),
        ("all_to_all", {"proto": "LL128", "algo": "nccl_p2p"}, "LL and Simple"),
    ],
)
def test_a_protocol_that_the_library_lacks_is_refused(op, asked, has):
    with pytest.raises(InputError) as caught:
        simulate(H100, op, "64M", **asked)
    fault = caught.value.faults[0]
    assert (fault.where, fault.hint) == ("proto", f"it has {has}")


def test_a_protocol_leaves_the_rest_of_the_choice_to_the_library():
    asked = simulate("hgx_b200", "all_reduce", "64M", proto="LL").rows[0]
    told = simulate("hgx_b200", "all_reduce", "64M", environment={"NCCL_PROTO": "LL"}).rows[0]
    assert (asked.algo, asked.proto) == ("ring", "LL")
    assert asked.time_s == told.time_s
    assert all(row.algo != "nvls" for row in simulate(H100, "all_reduce", "64M", proto="LL", algo="all"))


def test_an_interval_holds_only_where_it_was_measured():
    def has_interval(topo, **more):
        return simulate(topo, "all_reduce", "64M", **more).rows[0].time_lo_s is not None

    assert has_interval("mi300x_ubb8")
    assert not has_interval("mi300x_ubb8", overrides=["link.bandwidth=80 GB/s"])
    assert not has_interval("mi325x_ubb8", profile="mi300x_ubb8")
    assert has_interval("mi325x_ubb8")
    assert not has_interval("mi300x_ubb8", profile="mi325x_ubb8")
    everywhere = replace(load_profile("mi325x_ubb8"), systems=())
    assert has_interval("mi300x_ubb8", profile=everywhere)


def test_registered_buffers_with_a_graph_are_told_to_change_nothing():
    both = simulate(H100, "all_reduce", "64M", launch="graph", registered=True)
    graph = simulate(H100, "all_reduce", "64M", launch="graph")
    assert [row.time_s for row in both] == [row.time_s for row in graph]
    assert set(both.warnings) - set(graph.warnings) == {
        "registered buffers change nothing with graph launches: replaying a graph registers them too"
    }


def test_messages_between_nodes_have_no_ll128_either():
    with pytest.raises(InputError, match="does not run all_to_all with LL128"):
        simulate(load_topology(H100, scale_out={"nodes": 2}), "all_to_all", "16M", proto="LL128")


CHOSEN = [("best", "one_shot"), ("all", "one_shot"), ("auto", ""), ("one_shot", "")]


@pytest.mark.parametrize(("algo", "foreign"), CHOSEN)
def test_best_and_all_say_what_the_library_does_not_run(algo, foreign):
    result = simulate(H100, "all_reduce", 4096, algo=algo)
    told = [text for text in result.warnings if text.startswith("nccl-2.28 does not run all_reduce by ")]
    assert len(told) == bool(foreign)
    if told:
        assert foreign in told[0]
        assert "ring" not in told[0]


def test_best_says_nothing_where_the_library_runs_it():
    result = simulate(H100, "all_reduce", "16M", algo="best")
    assert [row.algo for row in result.rows] == ["nvls"]
    assert not any("does not run" in text for text in result.warnings)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "broadcast"])
@pytest.mark.parametrize("topo", ["dgx_a100", "hgx_h100", "hgx_b200", "gb200_nvl72", "mi300x_ubb8", "mi250x_node"])
def test_a_named_ring_runs_on_the_channels_of_the_library(topo, op):
    named = simulate(topo, op, "1G", algo="ring").rows[0]
    forced = simulate(topo, op, "1G", environment={"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}).rows[0]
    assert named.channels == forced.channels
    if op != "broadcast":  # whose chunks the library cuts by its own rule
        assert named.time_s == pytest.approx(forced.time_s, rel=5e-3)  # NCCL deals bytes out in cells, we evenly


def test_channels_that_the_user_gives_go_before_those_of_the_library():
    assert simulate("dgx_a100", "all_reduce", "64M", algo="ring", channels=3).rows[0].channels == 3
