"""Rows that take less time for more bytes or ranks say what the library did otherwise; those of named ones do not."""

import collsim
from collsim.report import render
from collsim.report.surprises import surprise_lines


def test_a_fall_names_what_the_library_switched():
    result = collsim.simulate("alps", "all_gather", ["1M", "2M"], ranks=8)
    less, more = result.rows
    assert more.time_s < less.time_s, "the library leaves LL, which is slow on this network"
    assert surprise_lines(result.rows) == [
        "less time for more bytes, as the library switches (docs/jumps.md): "
        f"1 MiB to 2 MiB: {less.label}, then {more.label}"
    ]
    assert f"{less.label}, then" in " ".join(render(result).split())


def test_more_ranks_in_less_time_are_told_too():
    rows = collsim.simulate("polaris", "all_reduce", "1M", ranks=[16, 32]).rows
    falls = rows[1].time_s < rows[0].time_s
    assert bool(surprise_lines(rows)) == falls
    ran = ", then ".join(f"{row.algo}/{row.proto}" for row in rows)
    assert not falls or f"16 to 32 ranks at 1 MiB: {ran}" in surprise_lines(rows)[0]


def test_nothing_is_said_of_rows_that_rise_or_of_named_algorithms():
    rising = collsim.simulate("hgx_h100", "all_reduce", ["1M", "1G"])
    assert not surprise_lines(rising.rows)
    named = collsim.simulate("alps", "all_gather", ["1M", "2M"], ranks=8, algo="ring")
    assert not surprise_lines(named.rows)
