"""Listings in pages: every item once, whatever changes between pages; cursors that do not fit are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.gateway.paging import paged
from headwater.gateway.problems import BAD_REQUEST, Refusal


def walk(found: list[str], limit: int, most: int) -> list[list[str]]:
    pages, cursor = [], ""
    while True:
        page, then = paged("things", found, str, limit=limit, cursor=cursor, most=most)
        pages.append(page)
        if then is None:
            return pages
        cursor = then


@given(st.lists(st.text(max_size=5), unique=True, max_size=30), st.integers(1, 7), st.integers(1, 7))
def test_every_item_once(names: list[str], limit: int, most: int) -> None:
    names.sort()
    pages = walk(names, limit, most)
    assert [name for page in pages for name in page] == names
    assert all(len(page) == min(limit, most) for page in pages[:-1])


def test_what_comes_and_goes_between_pages() -> None:
    """What was there all the time is seen once: the cursor names an item, not a number."""
    first, cursor = paged("things", ["b", "d", "f", "h"], str, limit=2, cursor="", most=9)
    assert first == ["b", "d"] and cursor is not None
    second, then = paged("things", ["a", "b", "c", "e", "f", "h"], str, limit=9, cursor=cursor, most=9)
    assert second == ["e", "f", "h"] and then is None


def test_keys_that_are_numbers() -> None:
    first, cursor = paged("numbers", [2, 10, 30], int, limit=1, cursor="", most=9)
    assert first == [2] and cursor is not None
    assert paged("numbers", [2, 10, 30], int, limit=5, cursor=cursor, most=9) == ([10, 30], None)


@pytest.mark.parametrize(
    "cursor", ["x", "!!", "e30", "WyJvdGhlciIsImEiXQ", "WyJ0aGluZ3MiLDFd", "WyJ0aGluZ3MiLCJhIl0=é", "é"]
)
def test_cursors_that_are_none(cursor: str) -> None:
    """Garbage, another JSON, another listing, a key of another type."""
    with pytest.raises(Refusal) as refused:
        paged("things", ["a", "b"], str, limit=1, cursor=cursor, most=9)
    assert refused.value.kind is BAD_REQUEST
