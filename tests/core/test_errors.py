"""Faults, errors, exit codes, near misses."""

import pytest

from collsim.core import errors
from collsim.core.errors import (
    CollsimError,
    Fault,
    Faults,
    InputError,
    ModelError,
    SpecError,
    UnknownNameError,
    nearest,
)


def test_fault_says_where_what_and_what_to_do():
    assert str(Fault("it broke")) == "it broke"
    assert str(Fault("it broke", "a.yaml:3")) == "a.yaml:3: it broke"
    assert str(Fault("it broke", "-f", "mend it")) == "-f: it broke\n  hint: mend it"


def test_error_lists_its_faults():
    error = InputError(Fault("one", "-a"), "two")
    assert [fault.what for fault in error.faults] == ["one", "two"]
    assert str(error) == "-a: one\ntwo"


@pytest.mark.parametrize("part", ["what", "where", "hint"])
@pytest.mark.parametrize("length", [59, 60, 61, 399, 401, 5000])
def test_words_that_no_path_is_as_long_as_are_cut_to_their_first_60_characters(part, length):
    word = ("abcdefghij" * 500)[:length]
    shown = word if length < 400 else word[:60] + "..."
    sentence = f"say {{0}} and {'more ' * 100}of {{0}}"  # long itself, of short words
    for text in ("{0}", sentence):
        assert getattr(Fault(**{"what": "wrong", part: text.format(word)}), part) == text.format(shown)


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name.endswith("Error")])
def test_every_error_is_a_collsim_error_with_an_exit_code(name):
    kind = getattr(errors, name)
    assert issubclass(kind, CollsimError)
    assert kind.exit_code == (2 if issubclass(kind, InputError) else 3 if issubclass(kind, ModelError) else 1)


def test_unknown_name_offers_the_nearest_or_all():
    near = UnknownNameError("fruit", "aple", ["pear", "apple"], "--fruit").faults[0]
    assert (near.where, near.what) == ("--fruit", 'unknown fruit "aple"')
    assert near.hint == 'did you mean "apple"? known: apple, pear'
    assert UnknownNameError("fruit", "xyz", ["pear", "apple"]).faults[0].hint == "known: apple, pear"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("MI300X", "mi300x"), ("mi30x", "mi300x"), ("tpu", None), ("", None), ("hgx-h100", "hgx_h100")],
)
def test_nearest(name, expected):
    assert nearest(name, ["mi300x", "hgx_h100"]) == expected


def refuse(text, where=""):
    raise InputError(Fault(f"{text} is wrong", where))


def test_collector_keeps_going_and_raises_everything_once():
    faults = Faults()
    assert faults.attempt(int, "10", base=2) == 2
    assert faults.attempt(refuse, "this", where="size") is None
    assert faults.attempt(refuse, "that", "ranks", where="size") is None
    assert faults.attempt(refuse, "this", where="size") is None
    with pytest.raises(SpecError) as refused:
        faults.raise_any(SpecError)
    assert [(fault.what, fault.where) for fault in refused.value.faults] == [
        ("this is wrong", "size"),
        ("that is wrong", "ranks"),
    ]


def test_collector_says_where_the_user_wrote_the_value():
    faults = Faults(lambda where: f"--{where}")
    faults.append(Fault("wrong", "size"))
    with pytest.raises(InputError, match=r"^--size: wrong$"):
        faults.raise_any()


def test_collector_without_faults_raises_nothing_and_lets_defects_through():
    faults = Faults()
    faults.raise_any()
    with pytest.raises(ZeroDivisionError):
        faults.attempt(lambda: 1 / 0)
