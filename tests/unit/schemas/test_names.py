"""Names of columns: what all engines can read, and no two alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.schemas.names import cut_to, folded, readable, unlike

FORBIDDEN = set(" ,;{}()\n\t=.\"`'")
"""What Delta refuses without column mapping, dots and quotes."""


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("price", "price"),
        ("a.b", "a_b"),
        ("user-id", "user_id"),
        ("with space", "with_space"),
        ('say "hi"', "say__hi_"),
        ("@timestamp", "_timestamp"),
        ("1st", "_1st"),
        ("", "_"),
        ("select", "select"),
        ("größe", "größe"),
        ("価格", "価格"),
        ("गति", "गति"),
        ("e\u0301", "é"),
        ("half \ud800", "half__"),
        ("\0", "_"),
    ],
)
def test_a_name_has_letters_digits_marks_and_underscores(name: str, column: str) -> None:
    assert readable(name) == column


@given(st.text(st.characters(codec=None), max_size=20))
def test_every_name_becomes_one_that_engines_read(name: str) -> None:
    column = readable(name)
    assert column and not FORBIDDEN & set(column) and not column[0].isdigit()
    assert column.encode() and readable(column) == column


def test_names_that_some_engine_takes_for_the_same_fold_alike() -> None:
    assert folded("Price") == folded("PRICE") == folded("price")
    assert folded("ı") == folded("i") == folded("I")
    assert folded("K") == folded("k")
    assert folded("a") != folded("b")


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert unlike("x", "", {"y"}, 255) == "x"
    assert unlike("X", "", {"x", "x__2"}, 255) == "X__3"
    assert unlike("x", "__string", {"x__string"}, 255) == "x__string__2"


def test_a_suffix_and_a_number_stay_within_the_length() -> None:
    long = "ä" * 127
    assert unlike(long, "__string", set(), 255) == "ä" * 123 + "__string"
    number = unlike(long, "", {folded(long)}, 255)
    assert number == "ä" * 126 + "__2" and len(number.encode()) == 255


def test_a_text_is_cut_between_characters() -> None:
    assert cut_to("aäb", 2) == "a"
    assert cut_to("aäb", 3) == "aä"
    assert cut_to("abc", 9) == "abc"
