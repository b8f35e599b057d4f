"""The note under a table that not all rows are exact."""

from collsim import simulate
from collsim.report import render


def test_rows_of_what_is_only_nearly_alike_say_so():
    result = simulate("h100_rail", "all_to_all", "1M", overrides={"scale_out.nodes": "40"})
    assert "1 row: what is only nearly alike was taken as alike" in render(result)
    exact = simulate("h100_rail", "all_to_all", "1M", overrides={"scale_out.nodes": "40"}, reduce=False)
    assert "nearly alike" not in render(exact)
