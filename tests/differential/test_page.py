"""The written list of allowed differences is the one that the comparison uses."""

from __future__ import annotations

from tests.differential.allowed import PAGE, rendered


def test_the_page_lists_what_is_allowed() -> None:
    text = PAGE.read_text()
    assert rendered(text) == text, "run `python -m tests.differential.allowed`"
