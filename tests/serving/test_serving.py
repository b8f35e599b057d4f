"""Laws of serving: no load, full load, Little's law, seeds, links, failures, and jobs beside each other."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from collsim.core.errors import InputError, ModelError, SpecError
from collsim.report.serving import render_serving
from collsim.serving import simulate_serving
from collsim.serving.cluster import serve
from collsim.serving.decode import Step, Steps, padded
from collsim.serving.fabric_sharing import detour, slowdown
from collsim.serving.simulate import _Study
from collsim.serving.spec import Failure, Job, Kernels, Request, Serving, read_arrivals, serving_of
from collsim.timeline.gpus import gpu_of

JOB = Job(
    "chat", "mixtral-8x7b", 8, tuple(range(8)), batch=4, rate=20.0, prompt=100, output=50,
    attention=Kernels(20e-6, 1e-6, 1e-9), experts=Kernels(30e-6, 2e-6), rest=Kernels(100e-6),
)  # fmt: skip
SERVING = Serving("hgx_h100", "H100", (JOB,), duration_s=20.0, warm_up_s=4.0, seed=1)


def flat(number, requests, context, slower, failed):
    """Return a step that takes 10 ms, and 1 ms more for each request of the fullest rank."""
    return Step(10e-3 + 1e-3 * requests, 0.5, 0.1, 0.2)


def no_costs(one, other, failed):
    return 1.0


def served(job=JOB, step_of=flat, **changes):
    return serve(replace(SERVING, jobs=(job,), **changes), [0], step_of, no_costs)[0]


def test_without_load_a_request_takes_its_steps():
    one = replace(JOB, requests=(Request(1.0, 100, 50),))
    (request,) = served(one).served
    assert request.started_s == 1.0
    assert request.finished_s == pytest.approx(1.0 + 50 * 11e-3)
    found = simulate_serving(replace(SERVING, jobs=(one,), warm_up_s=0.5)).jobs[0]
    step_s = Steps(one, "hgx_h100", gpu_of("H100"), {}).of(1, 100).time_s
    assert found.latency_median_s == pytest.approx(50 * step_s)
    assert found.token_median_s == pytest.approx(step_s)
    assert (found.finished, found.wait_p99_s) == (1, 0.0)


def test_throughput_saturates_at_capacity():
    """32 requests at a time, a step of 14 ms: 2286 tokens a second and no more."""
    logs = [served(replace(JOB, rate=rate)) for rate in (10.0, 30.0, 100.0, 1000.0)]
    rates = [sum(log.running) / SERVING.duration_s for log in logs]
    assert rates[0] == pytest.approx(10 * 50, rel=0.2)
    assert rates[2:] == pytest.approx([32 / 14e-3] * 2, rel=0.02)
    assert max(max(log.running) for log in logs) == 32
    assert logs[3].waiting[-1] > 10 * logs[2].waiting[-1] > 0


def test_a_full_cluster_reaches_what_is_called_its_capacity():
    found = simulate_serving(replace(SERVING, jobs=(replace(JOB, rate=1000.0),), duration_s=6.0, warm_up_s=2.0)).jobs[0]
    assert found.tokens_per_s == pytest.approx(found.capacity_tokens_per_s, rel=0.03)
    assert found.offered_per_s > 2 * found.requests_per_s


@pytest.mark.parametrize("rate", [10.0, 35.0])
def test_littles_law(rate):
    """Requests that run or wait, by steps, are as many as come in a second, times how long each stays."""
    job = replace(JOB, rate=rate, spread=0.3)
    found = simulate_serving(replace(SERVING, jobs=(job,), duration_s=60.0, warm_up_s=10.0)).jobs[0]
    assert found.running + found.waiting == pytest.approx(found.requests_per_s * found.latency_mean_s, rel=0.08)


def test_the_same_seed_gives_the_same_answer():
    job = replace(JOB, spread=0.5)
    logs = [served(job, jitter=0.1, seed=seed) for seed in (1, 1, 2)]
    assert logs[0].begin_s == logs[1].begin_s != logs[2].begin_s
    assert logs[0].served == logs[1].served


def test_nothing_arrives_where_no_rate_is_said():
    silent = Job("quiet", JOB.model, 8, JOB.gpus, attention=JOB.attention, experts=JOB.experts)
    assert served(silent).served == []
    told = (Request(1.0, 100, 50), Request(1.5, 100, 50))
    assert len(served(replace(JOB, requests=told)).served) == 2  # those of a file alone, whatever the rate


def test_arrivals_are_of_poisson():
    arrived = np.array([each.arrived_s for each in served(replace(JOB, rate=200.0)).served])
    gaps = np.diff(np.sort(arrived))
    assert len(arrived) == pytest.approx(200 * 20, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)


def test_stragglers_make_tokens_late():
    plain, late = served(), served(straggler_share=0.1, straggler_slower=3.0)
    assert max(plain.time_s) <= 14e-3 * (1 + 1e-9)
    assert sum(t > 25e-3 for t in late.time_s) / len(late.time_s) == pytest.approx(0.1, abs=0.04)


def test_jitter_spreads_steps_as_it_says():
    job = replace(JOB, rate=1000.0)
    plain, spread = (np.log(np.array(served(job, jitter=jitter).time_s)) for jitter in (0.0, 0.2))
    assert spread.std() - plain.std() > 0.05
    assert np.hypot(plain.std(), 0.2) == pytest.approx(spread.std(), rel=0.15)


def test_a_faster_link_never_serves_fewer_tokens():
    """All requests come at once and keep all places taken; links are slow enough that bytes count."""
    job = replace(JOB, requests=(Request(0.0, 100, 50),) * 20000, batch=64)
    rates = []
    for bandwidth in ("2 GB/s", "20 GB/s", "100 GB/s", "400 GB/s"):
        one = replace(SERVING, jobs=(job,), duration_s=1.0, warm_up_s=0.2, overrides={"link.bandwidth": bandwidth})
        rates.append(simulate_serving(one).jobs[0].tokens_per_s)
    assert all(after >= before * (1 - 1e-6) for before, after in pairwise(rates)), rates
    assert rates[1] > 1.2 * rates[0]


def test_a_failure_is_felt_while_it_lasts():
    data = {
        "schema": "collsim.serving/1", "topo": "hgx_h100", "gpu": "H100", "duration": "6 s", "warm_up": "1 s",
        "failures": [{"at": "2 s", "until": "4 s", "degrade": {f"link:gpu3-nvsw{n}": "2%" for n in range(4)}}],
        "jobs": [{"ranks": 8, "model": "mixtral-8x7b", "batch": 4, "rate": 1000, "prompt": 100, "output": 50,
                  "attention": {"time": "20 us"}, "experts": {"time": "30 us"}}],
    }  # fmt: skip
    moments = simulate_serving(serving_of(data)).jobs[0].moments
    before, during, after = (
        np.mean([part.tokens_per_s for part in moments if a <= part.begin_s < b - 0.3])
        for a, b in ((1.0, 2.0), (2.1, 4.0), (4.3, 6.1))
    )
    assert during < 0.9 * before
    assert after == pytest.approx(before, rel=0.05)
    assert max(part.link_load for part in moments) > 3 * moments[4].link_load


@pytest.mark.parametrize("duty", [0.05, 0.5, 2.0])
def test_what_others_take_makes_dispatch_and_combine_longer_by_so_much(duty):
    """One batch at a time waits for all of its communication, of which the step holds so large a part."""
    steps = Steps(JOB, "hgx_h100", gpu_of("H100"), {})
    alone, beside = (steps.of(4, 100, duty=share).time_s for share in (0.0, duty))
    assert beside == pytest.approx(alone * (1 + duty * steps.of(4, 100).communication))


def test_half_batches_that_take_turns_hide_what_they_exchange():
    kernels = {"attention": Kernels(200e-6, 20e-6), "experts": Kernels(200e-6, 20e-6)}
    steps = [
        Steps(replace(JOB, micro_batches=n, batch=64, **kernels), "hgx_h100", gpu_of("H100"), {}).of(64, 100)
        for n in (1, 2)
    ]
    assert steps[1].exposed < 0.2 * steps[0].exposed
    assert steps[0].exposed == pytest.approx(steps[0].communication)


def test_a_step_is_the_sum_of_its_parts_where_nothing_overlaps():
    steps = Steps(JOB, "hgx_h100", gpu_of("H100"), {})
    step = steps.of(3, 200.0)
    assert (padded(3), steps.count) == (4, 1)
    rows = steps._exchange(4)
    layer_s = 20e-6 + 4 * (1e-6 + 256 * 1e-9) + 30e-6 + 4 * 2e-6 + rows[0].time_s + rows[1].time_s
    assert step.time_s == pytest.approx(32 * layer_s + 100e-6)
    assert steps.of(4, 256.0) is step


def test_jobs_cost_each_other_what_their_links_share():
    """On one root of PCIe each, nothing; on every second GPU, both go over the link between the roots, half each."""

    def halves(*gpus):
        return tuple(replace(JOB, name=str(n), ranks=4, gpus=tuple(each)) for n, each in enumerate(gpus))

    assert slowdown("pcie_gen5_8gpu", halves(range(4), range(4, 8)), {}) == pytest.approx(1.0)
    assert slowdown("pcie_gen5_8gpu", halves(range(0, 8, 2), range(1, 8, 2)), {}) == pytest.approx(2.0)
    assert slowdown("hgx_h100", halves(range(0, 8, 2), range(1, 8, 2)), {}) == pytest.approx(1.0)


def test_a_job_beside_another_is_slower_as_far_as_the_other_exchanges():
    both = replace(SERVING, jobs=(JOB, replace(JOB, name="other")), duration_s=4.0)

    def exchange(number, requests, context, slower, failed):
        return Step(10e-3 * (0.5 + 0.5 * (1 + slower)), 0.5, 0.5, 0.2)

    logs = [serve(both, jobs, exchange, lambda *_: 2.0) for jobs in ([0], [0, 1])]
    assert np.mean(logs[1][0].time_s[50:]) == pytest.approx(10e-3 * 1.25, rel=0.02)  # the other exchanges half the time
    assert np.mean(logs[0][0].time_s) == pytest.approx(10e-3)


def test_arrivals_of_a_file(tmp_path):
    file = tmp_path / "arrivals.csv"
    file.write_text("time_s,prompt,output\n2.5,10,3\n0.5,20,4\n")
    assert read_arrivals(file) == (Request(0.5, 20, 4), Request(2.5, 10, 3))
    wrong = {
        "1,2": "'1,2' is no request",
        "-1,2,3": "time_s -1",
        "1,2,0": "output 0",
        "1,-2,x": "'1,-2,x' is no request",
    }
    file.write_text("\n".join(["time_s,prompt,output", *wrong]))
    with pytest.raises(InputError) as refused:
        read_arrivals(file)
    assert [fault.what for fault in refused.value.faults] == [f"line {n}: {w}" for n, w in enumerate(wrong.values(), 2)]
    with pytest.raises(InputError, match="has no column prompt, output, only time_s, out"):
        file.write_text("time_s,out\n1,2\n") and read_arrivals(file)
    with pytest.raises(InputError, match="0 requests"):
        file.write_text("time_s,prompt,output\n") and read_arrivals(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_arrivals(tmp_path / "none.csv")


def test_every_fault_of_a_file_is_said_at_once():
    bad = {
        "schema": "collsim.serving/2", "durations": "5 s", "jitter": 2, "warm_up": "90 s",
        "failures": [{"at": "3 s"}],
        "jobs": [
            {"name": "a", "ranks": 8, "rate": "x", "prompt": -1, "attention": {"time": 3}},
            {"name": "a", "ranks": 1, "gpus": "0-x"},
            {"name": "b", "ranks": 8, "gpus": "7-0"},
            {"name": "c", "ranks": 8, "gpus": "0-3,2-6"},
        ],
    }  # fmt: skip
    with pytest.raises(SpecError) as caught:
        serving_of(bad, "a.yaml")
    text = str(caught.value)
    for part in ('did you mean "duration"', "collsim.serving/2", "no system", "leave nothing", "nothing that fails",
                 "'x' is no number", "-1 is no whole number", "has no unit", "1 is no whole number", "no range of GPUs",
                 '"7-0" runs backwards', "give 0-7", "GPU 2 is named more than once",
                 "says neither rate nor arrivals", "one name"):  # fmt: skip
        assert part in text, part
    with pytest.raises(SpecError, match="there are no jobs"):
        serving_of({"schema": "collsim.serving/1", "topo": "hgx_h100"})


def test_jobs_and_failures_that_do_not_fit_are_refused():
    with pytest.raises(SpecError, match="unknown model"):
        simulate_serving(replace(SERVING, jobs=(replace(JOB, model="mixtral"),)))
    with pytest.raises(InputError, match="there are 8"):
        simulate_serving(replace(SERVING, jobs=(replace(JOB, gpus=tuple(range(1, 9))),)))
    half = [replace(JOB, name=name, ranks=4, gpus=(0, 1, 2, 3)) for name in "ab"]
    with pytest.raises(InputError, match="4 of them different"):
        simulate_serving(replace(SERVING, jobs=tuple(half)))
    with pytest.raises((InputError, ModelError)):
        _Study(replace(SERVING, jobs=(replace(JOB, ranks=7, gpus=tuple(range(7))),)), "").result()


def test_a_job_without_requests_has_zeros():
    found = simulate_serving(replace(SERVING, jobs=(replace(JOB, rate=0.0),), duration_s=1.0, warm_up_s=0.1))
    (job,) = found.jobs
    assert (found.steps, job.finished, job.tokens_per_s, job.token_p99_s, job.link_load) == (0, 0, 0.0, 0.0, 0.0)
    assert job.capacity_tokens_per_s > 0
    assert "alone" not in render_serving(found)


def test_what_is_served_alone_and_together_is_reported():
    jobs = tuple(replace(JOB, name=name, ranks=4, gpus=gpus, rate=10.0) for name, gpus in
                 (("chat", (0, 2, 4, 6)), ("batch", (1, 3, 5, 7))))  # fmt: skip
    found = simulate_serving(replace(SERVING, topo="pcie_gen5_8gpu", jobs=jobs, duration_s=3.0, warm_up_s=1.0))
    text = render_serving(found)
    assert "chat: alone" in text
    assert "take 2.00 times as long as alone" in text
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert [row.split()[0] for row in rows] == ["chat", "batch"]
    assert all(job.token_median_s > job.alone_token_median_s for job in found.jobs)
    data = json.loads(render_serving(found, "json"))
    assert (data["schema"], len(data["jobs"])) == ("collsim.serving_result/1", 2)
    assert len(data["jobs"][0]["moments"]) == 20
    with pytest.raises(InputError, match="unknown format"):
        render_serving(found, "csv")


def test_two_jobs_on_one_link_cost_each_other_twice_the_time(monkeypatch):
    """Both are made as long alone as the longer one, 4 s here, so that one link carries 8 s of them."""
    alone_s = (1.0, 4.0)

    def one_link_s(topology, jobs, machine, scales):
        return sum(own_s * scale for own_s, scale in zip(alone_s, scales, strict=True))

    monkeypatch.setattr("collsim.serving.fabric_sharing._time_s", one_link_s)
    assert slowdown("any", [object(), object()], {}) == pytest.approx(2.0)


def test_capacity_is_that_of_requests_half_way_through_their_output():
    """From the start to the end of an output of 4000 tokens the contexts of requests average 100 + 2000 tokens."""
    job = replace(JOB, output=4000)
    found = simulate_serving(replace(SERVING, jobs=(replace(job, rate=0.0),), duration_s=1.0, warm_up_s=0.1)).jobs[0]
    mean_s = Steps(job, "hgx_h100", gpu_of("H100"), {}).of(job.batch, 2100).time_s
    assert found.capacity_tokens_per_s == pytest.approx(job.ranks * job.batch / mean_s)


def test_values_out_of_all_bounds_are_told(tmp_path):
    job = {"model": "mixtral-8x7b", "ranks": 8, "rate": 1}
    data = {
        "schema": "collsim.serving/1",
        "topo": "hgx_h100",
        "failures": [{"at": "3 s", "until": "1 s", "fail": "link:gpu0-nvsw0"}],
        "jobs": [{**job, "gpus": "0-99999999999"}],
    }
    with pytest.raises(SpecError) as refused:
        serving_of(data)
    for part in ("failures[0].until", "before it begins", "is more than 1,048,576 GPUs"):
        assert part in str(refused.value), part
    with pytest.raises(InputError, match="-1 is no whole number"):
        simulate_serving(SERVING, seed=-1)
    file = tmp_path / "arrivals.csv"
    for row in ("1," + "9" * 4000 + ",1", "1," + "9" * 200_000 + ",1"):
        file.write_text(f"time_s,prompt,output\n{row}\n")
        with pytest.raises(InputError, match=r"line 2: prompt 9|cannot be read"):
            read_arrivals(file)
    file.write_text("\ufefftime_s,prompt,output\n1,2,3\n", encoding="utf-8")
    assert read_arrivals(file) == (Request(1.0, 2, 3),)


@pytest.mark.parametrize(
    ("head", "job", "message"),
    [
        ({}, {"arrivals": "late.csv"}, r"jobs\[0\].arrivals: the first request comes at 100 s, after the end at 2 s"),
        ({}, {"rate": "1e9"}, r"jobs\[0\].rate: 2,000,000,000 requests"),
        ({"duration": "1000000 s"}, {"rate": 1}, "duration: about [0-9,]* steps of job job 0, more than 2,000,000"),
        ({"failures": [{"at": "1 s", "fail": True}]}, {}, r"failures\[0\].fail: True names nothing"),
        ({"failures": [{"at": "1 s", "fail": "link:gpu0-nvsw99"}]}, {}, r"failures\[0\].fail: .*nvsw99"),
        ({"failures": [{"at": "1 s", "degrade": {"link:gpu0-nvsw0": "150%"}}]}, {}, r"failures\[0\].degrade: .*150%"),
        ({"set": {"foo": 1}}, {}, "set.foo: unknown path"),
        ({}, {"model": 5}, r'jobs\[0\].model: unknown model "5"'),
        ({}, {"name": ["a"]}, r"jobs\[0\].name: .* is no text"),
        ({}, {"ranks": 5}, r"jobs\[0\].ranks: 8 experts do not spread(.|\n)*add redundant: 2, give [^-]*$"),
        ({"failures": [{"fail": "gpu:gpu3"}]}, {}, r"failures\[0\] with jobs\[0\].ranks: 8 ranks"),
        ({}, {"sms": 500}, r"jobs\[0\].sms: 500 of the 132 multiprocessors"),
    ],
)
def test_what_cannot_be_served_is_told_with_its_place(tmp_path, head, job, message):
    (tmp_path / "late.csv").write_text("time_s,prompt,output\n100,100,20\n")
    told = {"model": "mixtral-8x7b", "ranks": 8, "batch": 4, "output": 20, **({} if "arrivals" in job else {"rate": 5})}
    data = {"schema": "collsim.serving/1", "topo": "hgx_h100", "duration": "2 s", **head, "jobs": [{**told, **job}]}
    file = tmp_path / "serving.yaml"
    file.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message) as refused:
        simulate_serving(file)
    assert all(fault.where.startswith(str(file)) for fault in refused.value.faults)


def test_ranks_that_a_failure_cuts_off_are_told_with_it():
    """A node of eight whose first GPU loses its links to all four switches."""
    cut = Failure(0.0, 1.0, tuple(f"link:gpu0-nvsw{i}" for i in range(4)))
    with pytest.raises(ModelError) as refused:
        simulate_serving(replace(SERVING, failures=(cut,)))
    assert [fault.where for fault in refused.value.faults] == ["failures[0] with jobs[0]"]


@pytest.mark.parametrize(
    ("gpus", "failures", "per_node", "told"),
    [
        ("0-7", (), None, ""),
        ("8-15", (), None, ""),
        ("0-3,8-11", (), 4, ""),
        ("4-7,12-15", (), 4, ""),
        ("0-1,8-9,16-17,24-25", (), 2, ""),
        ("4-11", (), 4, ""),
        ("5-12", (), None, "lie on 2 nodes: its exchanges are timed on the first 8, on 1"),
        ("0-3,8-11", (Failure(9.0, 10.0, ("link:n0.gpu5-n0.nvsw0",)),), None, "lie on 2 nodes"),
    ],
)
def test_exchanges_go_over_the_nodes_on_which_a_job_lies(gpus, failures, per_node, told):
    (job,) = serving_of(
        {"schema": "collsim.serving/1", "topo": "hgx_h100",
         "jobs": [{"model": "mixtral-8x7b", "ranks": 8, "batch": 4, "rate": 5, "gpus": gpus}]}
    ).jobs  # fmt: skip
    study = _Study(replace(SERVING, jobs=(job,), failures=failures, overrides={"scale_out.nodes": "4"}), "")
    spread, note = study._spread(job)
    assert spread == ({} if per_node is None else {"gpus_per_node": per_node})
    assert told in note
    assert bool(told) == bool(note)
    if per_node == 4:
        first = replace(job, gpus=tuple(range(8)))
        whole = _Study(replace(SERVING, jobs=(first,), overrides={"scale_out.nodes": "4"}), "")
        alone, apart = (each.steps(0, frozenset()).of(4, 100).time_s for each in (whole, study))
        assert apart > alone


def test_what_lies_outside_the_time_is_noted(tmp_path):
    (tmp_path / "some.csv").write_text("time_s,prompt,output\n0.1,100,2\n200,100,20\n")
    job = {"model": "mixtral-8x7b", "ranks": 8, "batch": 4, "arrivals": "some.csv"}
    data = {"schema": "collsim.serving/1", "topo": "hgx_h100", "duration": "2 s", "jobs": [job],
            "failures": [{"at": "5 s", "fail": "link:gpu0-nvsw0"}]}  # fmt: skip
    file = tmp_path / "serving.yaml"
    file.write_text(json.dumps(data))
    notes = simulate_serving(file).notes
    for told in ("1 of 2 requests of job 0 come after the end", "between the warm-up, 0.4 s, and the end",
                 "1 of 1 failures begin after the end"):  # fmt: skip
        assert any(told in note for note in notes), told


@pytest.mark.parametrize(
    ("oversubscription", "gpus", "times"),
    [("8", (*range(8), *range(16, 24)), 4.0), ("1", (*range(8), *range(16, 24)), 1.0), ("8", tuple(range(16)), 1.0)],
)
def test_nodes_behind_different_leaves_are_told(oversubscription, gpus, times):
    """Sixteen adapters below a leaf of two uplinks; a job on one node of each leaf has eight of them on both."""
    leaves = {"fabric": "fat_tree", "racks": "2", "nodes": "4", "oversubscription": oversubscription}
    machine = {"overrides": {f"scale_out.{name}": value for name, value in leaves.items()}}
    assert detour("h100_rail", replace(JOB, ranks=16, gpus=gpus), machine, 8) == pytest.approx(times, rel=1e-3)
