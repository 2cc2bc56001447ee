"""The second gate of Spark: a parsed statement has nothing but known kinds of nodes, and names without a dot.

Spark runs commands while it prepares a statement, so this looks at the statement before. The first gate has checked it
already (`headwater.query.gate`). A table whose name has one part is a view of the query, or it does not exist: every
query has a session of its own, and the catalog is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.gate.functions import FUNCTIONS
from headwater.query.gate.tables import TABLE_FUNCTIONS

_PLANS = """
Project Filter Aggregate Join LateralJoin Sort GlobalLimit LocalLimit Offset Tail Distinct Union Except Intersect
SubqueryAlias Subquery Generate Window WithWindowDefinition Pivot Unpivot Expand Sample OneRowRelation
UnresolvedHint UnresolvedHaving UnresolvedWith UnresolvedRelation UnresolvedInlineTable ResolvedInlineTable
UnresolvedSubqueryColumnAliases UnresolvedTableValuedFunction UnresolvedOrderBy LocalRelation ParameterizedQuery
NameParameterizedQuery CTERelationRef CTERelationDef WithCTE View UnresolvedQualify AsOfJoin UnresolvedTVFAliases
"""
_EXPRESSIONS = """
UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator UnresolvedOrdinal
UnresolvedPipeAggregateOrdinal UnresolvedRegex UnresolvedSeed UnresolvedStar UnresolvedStarExceptOrReplace
UnresolvedWithinGroup MultiAlias NamedParameter PosParameter
"""
READING = frozenset(_PLANS.split() + _EXPRESSIONS.split())
"""Kinds of plans and of names in them that only read."""
_CHECKED = (".plans.logical.", ".execution.", ".streaming.", ".catalog.", ".catalyst.analysis.")
"""Where the classes of commands are. Those of other expressions compute, and functions have a list of their own."""


def check(document: Any, more_functions: Collection[str] = ()) -> None:
    """Raise `StatementRefused` for a statement that does more than read views."""
    functions = FUNCTIONS[Engine.SPARK] | frozenset(more_functions)
    for node in _nodes(document):
        name = str(node["class"])
        short = name.rpartition(".")[2].partition("$")[0]
        if short == "UnresolvedRelation":
            parts = _names(node.get("multipartIdentifier"))
            if len(parts) != 1:
                raise StatementRefused(f"there is no topic {'.'.join(parts)!r}")
        elif short == "UnresolvedFunction":
            called = [part.lower() for part in _names(node.get("nameParts"))]
            if len(called) != 1 or called[0] not in functions:
                raise StatementRefused(f"the function {'.'.join(called)} is not available")
        elif short == "UnresolvedTableValuedFunction":
            called = [part.lower() for part in _names(node.get("name"))]
            if len(called) != 1 or called[0] not in TABLE_FUNCTIONS[Engine.SPARK]:
                raise StatementRefused(f"the function {'.'.join(called)} is not available")
        elif short == "UnresolvedGenerator":
            made = _called(node.get("name"))
            if made not in functions:
                raise StatementRefused(f"the function {made} is not available")
        elif short not in READING and any(part in name for part in _CHECKED):
            raise StatementRefused(f"a statement only reads: {short} is not available")


def _nodes(document: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a plan, those of expressions and of subqueries included."""
    waiting = [document]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            if "class" in found:
                yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _called(given: Any) -> str:
    """The name of a function that makes rows."""
    if isinstance(given, dict):
        plain = not any(given.get(part) for part in ("database", "catalog"))
        return str(given.get("funcName")).lower() if plain else "with a schema"
    return ".".join(_names(given)).lower()


def _names(given: Any) -> list[str]:
    """The parts of a name, which Spark writes as `[a, b]`."""
    if isinstance(given, list):
        return [str(part) for part in given]
    text = str(given or "")
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return [part.strip() for part in text.split(",")]
