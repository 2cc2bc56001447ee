"""What cannot be read, and the limits of what is read."""

from __future__ import annotations

import pytest

from headwater.query.asking import Engine
from headwater.query.gate import parsing
from headwater.query.gate.parsing import MAX_BRACKETS, MAX_PARAMETERS, MAX_TEXT
from tests.unit.query.gate.samples import ENGINES, checked, refusal


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("", "there is no statement"),
        (" ; ", "there is no statement"),
        ("-- nothing", "there is no statement"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT 'open", "a quote or a comment is not closed"),
        ("SELECT FROM WHERE", "syntax error"),
        ("SELECT", "a SELECT names no columns"),
        ("EXPLAIN SELECT", "a SELECT names no columns"),
        ("SELECT FROM orders", "a SELECT names no columns"),
        ("SELECT 1 WHERE EXISTS (SELECT FROM orders)", "a SELECT names no columns"),
        ("SELECT offset?::BIGINT FROM orders", ""),
        ("SELECT ?::", "syntax error"),
        ("SELECT offset ? FROM orders", "cannot be a parameter"),
        ("SELECT (1", "syntax error"),
        ("SELECT 1 FROM orders WHERE", "syntax error"),
        ("SELECT \x00", "control character U+0000"),
        ("SELECT \u202e1", "control character U+202E"),
        ("SELECT '\ud800'", "not valid Unicode"),
        ("SELECT MAP(a) USING 'cat' FROM orders", ""),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_cannot_be_read_is_refused(sql: str, words: str, engine: Engine) -> None:
    assert words in refusal(sql, engine)


def test_a_syntax_error_names_its_place() -> None:
    assert "(line 2, column 6)" in refusal("SELECT 1\nFROM )")
    assert "(line 2, column 7)" in refusal("SELECT 1 FROM orders\nWHERE nothing(offset)")


@pytest.mark.parametrize("engine", ENGINES)
def test_everything_has_a_limit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "characters" in refusal("SELECT 1" + " " * MAX_TEXT, engine)
    assert "brackets" in refusal("SELECT " + "(" * (MAX_BRACKETS + 1) + "1" + ")" * (MAX_BRACKETS + 1), engine)
    assert "nested" in refusal("SELECT " + " + ".join("1" * 400), engine)
    assert "nested" in refusal("SELECT " + "NOT " * 1_000 + "TRUE", engine)
    assert "nested" in refusal("SELECT " + "- " * 1_000 + "1", engine)
    assert "parameters" in refusal("SELECT " + ", ".join(["?"] * (MAX_PARAMETERS + 1)), engine)
    monkeypatch.setattr(parsing, "MAX_NODES", 500)
    assert "parts" in refusal("SELECT " + ", ".join(["1"] * 500), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_within_the_limits_is_read(engine: Engine) -> None:
    assert checked("SELECT " + "(" * MAX_BRACKETS + "1" + ")" * MAX_BRACKETS, engine)
    assert checked("SELECT " + " + ".join("1" * 250), engine)
    assert checked("SELECT 1 FROM orders WHERE offset IN (" + ", ".join(["1"] * 1_000) + ")", engine)
