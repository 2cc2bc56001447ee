"""Where statements end."""

from __future__ import annotations

import pytest

from headwater.cli.sql.command import parts
from headwater.cli.sql.statements import is_finished, split, statements


@pytest.mark.parametrize(
    ("text", "found", "rest"),
    [
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; SELECT 2 ;  ", ["SELECT 1", "SELECT 2"], "  "),
        ("SELECT ';', \";\", `;`;", ["SELECT ';', \";\", `;`"], ""),
        ("SELECT 'it''s;';", ["SELECT 'it''s;'"], ""),
        ("SELECT 1 -- ; no end\n;", ["SELECT 1 -- ; no end"], ""),
        ("SELECT /* ; */ 1;", ["SELECT /* ; */ 1"], ""),
        ("SELECT $$;$$, $a$;$$;$a$;", ["SELECT $$;$$, $a$;$$;$a$"], ""),
        ("SELECT 'open; ", [], "SELECT 'open; "),
        ("SELECT 1; SELECT /* open; ", ["SELECT 1"], " SELECT /* open; "),
        ("SELECT $$open;", [], "SELECT $$open;"),
        ("SELECT 4/2-1, $1;", ["SELECT 4/2-1, $1"], ""),
        ("SELECT value->>'a', a-b;", ["SELECT value->>'a', a-b"], ""),
        (";;; -- nothing\n;", [], ""),
        ("", [], ""),
    ],
)
def test_split(text: str, found: list[str], rest: str) -> None:
    assert split(text) == (found, rest)


def test_the_last_statement_needs_no_semicolon() -> None:
    assert statements("SELECT 1; SELECT 2 -- end") == ["SELECT 1", "SELECT 2 -- end"]
    assert statements("-- nothing\n /* at all */ ") == []


@pytest.mark.parametrize(
    ("text", "finished"),
    [("", True), ("\\d orders", True), ("SELECT 1", False), ("SELECT 1;", True), ("SELECT 1; SELECT", False),
     ("SELECT ';", False), ("SELECT 1; -- done", True)],
)  # fmt: skip
def test_a_shell_runs_what_is_finished(text: str, finished: bool) -> None:
    assert is_finished(text) is finished


def test_scripts_have_statements_and_commands() -> None:
    text = "\\x\nSELECT 1,\n '\n\\d in a text\n';\n-- a comment\n\\timing\nSELECT 2; SELECT 3;\nSELECT 4"
    assert list(parts(text)) == [
        "\\x\n", "SELECT 1,\n '\n\\d in a text\n';\n", "\\timing\n", "SELECT 2; SELECT 3;\n", "SELECT 4",
    ]  # fmt: skip
