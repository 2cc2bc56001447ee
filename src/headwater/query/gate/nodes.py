"""Which parts a statement may have: a list of what is allowed. What is not in it is refused, also what is new.

Functions are allowed here as such; their names are checked in the text that the engine gets (`written.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import exp

from headwater.errors import StatementRefused
from headwater.query.gate.parsing import place_of

_CLAUSES = "expressions from_ laterals joins pivots where group having qualify windows order limit offset sample"
_SPARK_CLAUSES = "distribute sort cluster"
_ALLOWED: dict[type[exp.Expr], str] = {
    exp.Select: f"with_ distinct hint exclude {_CLAUSES} {_SPARK_CLAUSES}",
    exp.Subquery: f"with_ this alias {_CLAUSES} {_SPARK_CLAUSES}",
    exp.Union: f"with_ this expression distinct by_name {_CLAUSES} {_SPARK_CLAUSES}",
    exp.Except: f"with_ this expression distinct by_name {_CLAUSES} {_SPARK_CLAUSES}",
    exp.Intersect: f"with_ this expression distinct by_name {_CLAUSES} {_SPARK_CLAUSES}",
    exp.Values: "expressions alias order limit offset pivots",
    exp.With: "expressions recursive",
    exp.CTE: "this alias materialized",
    exp.From: "this",
    exp.Join: "this on side kind using method match_condition expressions pivots",
    exp.Lateral: "this view outer alias ordinality",
    exp.Table: "this alias joins laterals pivots sample ordinality",
    exp.TableAlias: "this columns",
    exp.TableSample: "method percent rows size seed bucket_numerator bucket_denominator",
    exp.Pivot: "alias expressions fields unpivot columns include_nulls identify_pivot_strings prefixed_pivot_columns "
    "pivot_column_naming value_columns_first",
    exp.PivotAlias: "this alias",
    exp.UnpivotColumns: "this expressions",
    exp.Where: "this",
    exp.Group: "expressions grouping_sets cube rollup all",
    exp.Cube: "expressions",
    exp.Rollup: "expressions",
    exp.GroupingSets: "expressions",
    exp.Having: "this",
    exp.Qualify: "this",
    exp.Order: "this expressions",
    exp.Sort: "this expressions",
    exp.Cluster: "this expressions",
    exp.Distribute: "this expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "this expression",
    exp.LimitOptions: "percent rows",
    exp.Offset: "this expression",
    exp.Fetch: "direction count",
    exp.Distinct: "expressions on",
    exp.Window: "this partition_by order spec alias over first",
    exp.WindowSpec: "kind start start_side end end_side exclude",
    exp.Column: "this table db catalog",
    exp.Identifier: "this quoted",
    exp.Star: "except_ replace rename ilike",
    exp.Alias: "this alias",
    exp.Aliases: "this expressions",
    exp.Literal: "this is_string",
    exp.RawString: "this",
    exp.HexString: "this is_integer",
    exp.Boolean: "this",
    exp.Null: "",
    exp.Var: "this",
    exp.Placeholder: "this",
    exp.Parameter: "this",
    exp.Paren: "this",
    exp.Tuple: "expressions",
    exp.Bracket: "this expressions offset safe returns_list_for_maps",
    exp.Slice: "this expression step",
    exp.Dot: "this expression",
    exp.Lambda: "this expressions",
    exp.Kwarg: "this expression",
    exp.PropertyEQ: "this expression",
    exp.Comprehension: "this expression position iterator condition",
    exp.DataType: "this expressions nested values nullable",
    exp.DataTypeParam: "this",
    exp.ColumnDef: "this kind",
    exp.Interval: "this unit",
    exp.IntervalSpan: "this expression",
    exp.AtTimeZone: "this zone",
    exp.Filter: "this expression",
    exp.WithinGroup: "this expression",
    exp.IgnoreNulls: "this",
    exp.RespectNulls: "this",
    exp.HavingMax: "this expression max",
    exp.Between: "this low high symmetric",
    exp.In: "this expressions query unnest field",
    exp.Any: "this",
    exp.All: "this",
    exp.JSONPath: "expressions",
    exp.JSONPathRoot: "",
    exp.JSONPathKey: "this",
    exp.JSONPathSubscript: "this",
    exp.JSONPathWildcard: "",
    exp.JSONPathSlice: "start end step",
    exp.JSONKeyValue: "this expression",
}
"""By kind of part, the arguments that it may have."""
_FAMILIES = (exp.Binary, exp.Unary)
"""Operators: all of a family but those of `_REFUSED`."""
_REFUSED = (
    exp.CurrentUser,
    exp.SessionUser,
    exp.CurrentRole,
    exp.CurrentCatalog,
    exp.CurrentSchema,
    exp.CurrentDatabase,
    exp.Operator,
    exp.NestedJSONSelect,
    exp.ReadCSV,
    exp.ReadParquet,
    exp.JSONTable,
    exp.XMLTable,
    exp.OpenJSON,
)
"""Operators and functions that are never allowed, whatever they are called for an engine."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = re.compile(r"[A-Z]+(?: [A-Z]+)*")
_OF_WORDS = frozenset(
    {"side", "kind", "method", "start", "start_side", "end", "end_side", "exclude", "over", "direction"}
)
"""Arguments of joins and windows that the parser itself takes from words of SQL, such as `CURRENT ROW`."""
_NUMBER = re.compile(r"[0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[0-9A-Fa-f]*")
_PATH_PART = re.compile(r"[^\"'\\\x00-\x1f]*")


def check_nodes(tree: exp.Expr, functions: Collection[str], parameters: Collection[str]) -> None:
    """Raise `StatementRefused` at the first part that is not allowed.

    `functions` and `parameters` are the names that functions and parameters may have.
    """
    for node in tree.walk():
        _check(node)
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) and node.name.lower() not in functions:
            raise StatementRefused(f"the function {node.name.lower()} is not allowed{place_of(node)}")
        if isinstance(node, exp.Lateral | exp.Unnest) and not _WORD.fullmatch(node.alias or "_"):
            raise StatementRefused(
                f"the alias {node.alias!r} may have letters, digits and underscores only{place_of(node)}"
            )
        if isinstance(node, exp.Placeholder | exp.Parameter) and node.name not in parameters:
            raise StatementRefused(f"parameters are written as ?{place_of(node)}")


def drop_remarks(tree: exp.Expr) -> None:
    """Remove comments and hints. Engines may take orders from hints."""
    for node in tree.walk():
        node.comments = None
        if isinstance(node, exp.Select):
            node.set("hint", None)


def _check(node: exp.Expr) -> None:
    keys = _ALLOWED.get(type(node))
    if isinstance(node, _REFUSED) or (keys is None and not isinstance(node, (*_FAMILIES, exp.Func))):
        raise StatementRefused(f"{_name(node)} is not allowed in a query{place_of(node)}")
    if isinstance(node, exp.Select) and not node.expressions:
        raise StatementRefused(f"a SELECT names no columns{place_of(node)}")
    if isinstance(node, exp.Alias) and not isinstance(node.args.get("alias"), exp.Identifier):
        raise StatementRefused(f"the name of a column cannot be a parameter{place_of(node)}")
    for key, value in node.args.items():
        if value is None or value is False or value == []:
            continue
        if keys is not None and key not in keys.split():
            raise StatementRefused(f"{key.strip('_').upper()} is not allowed in {_name(node)}{place_of(node)}")
        for item in value if isinstance(value, list) else [value]:
            _check_leaf(node, key, item)


def _check_leaf(node: exp.Expr, key: str, value: object) -> None:
    """What is not a part of the tree itself is written as it is, so it must be a word, or a text that is quoted."""
    if value is None or isinstance(value, exp.Expr | bool | int | exp.DataType.Type):
        return
    if not isinstance(value, str) or not _fits(node, key, value):
        raise StatementRefused(f"{_name(node)} is not allowed like this{place_of(node)}")


def _fits(node: exp.Expr, key: str, value: str) -> bool:
    match node:
        case exp.Identifier() if key == "this":
            return bool(value)
        case exp.Literal() if key == "this":
            return bool(node.is_string or (value and _NUMBER.fullmatch(value)))
        case exp.RawString() if key == "this":
            return True
        case exp.HexString() if key == "this":
            return _HEX.fullmatch(value) is not None
        case exp.JSONPathKey() | exp.JSONPathSubscript():
            return _PATH_PART.fullmatch(value) is not None
        case exp.Join() | exp.Window() | exp.WindowSpec() | exp.Fetch() if key in _OF_WORDS:
            return _WORDS.fullmatch(value) is not None
        case _:
            return _WORD.fullmatch(value) is not None


def _name(node: exp.Expr) -> str:
    """What a part is called in SQL, more or less: DataType becomes `DATA TYPE`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()
