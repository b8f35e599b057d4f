"""Text of two or four bytes a character is known by its mark, or by where its zeros are."""

import codecs

import pytest

from collsim.core.input_files import narrowed, wide_encoding

TEXT = "GPU0 GPU1 NV18 mlx5_0 " * 10
MARKS = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE,
         "utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}  # fmt: skip


@pytest.mark.parametrize("encoding", MARKS)
def test_text_with_a_mark_is_read_whatever_it_says(encoding):
    for text in ("", "a", TEXT, "\u20ac\u4e16" * 40):
        assert narrowed(MARKS[encoding] + text.encode(encoding)) == text.encode()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("other", ["\u20ac", "\0"])
def test_text_without_a_mark_is_plain_letters_but_for_less_than_a_tenth(encoding, other):
    """A letter is a byte and a zero; one of other scripts has no zero, and a character of zeros has two."""
    for count in range(0, 101, 1):
        text = other * count + "x" * (100 - count)
        found = wide_encoding(text.encode(encoding))
        assert found == (encoding if count < 10 else None), count
        assert narrowed(text.encode(encoding)) == (text.encode() if found else text.encode(encoding))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_the_zeros_of_at_least_8_and_of_the_first_256_characters_count(encoding):
    assert [wide_encoding(("x" * count).encode(encoding)) for count in (7, 8)] == [None, encoding]
    assert wide_encoding(("x" * 256 + "\u20ac" * 1000).encode(encoding)) == encoding
    assert wide_encoding(("x" * 230 + "\u20ac" * 1000).encode(encoding)) is None


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-32-le", "utf-32-be"])
def test_what_has_zeros_nowhere_or_at_even_and_odd_places_is_left_as_it_is(encoding):
    for content in (TEXT.encode(encoding), bytes(400), bytes(range(256)) * 2):
        assert wide_encoding(content) is None
        assert narrowed(content) == content
