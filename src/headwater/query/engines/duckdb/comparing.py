"""DuckDB must read in the gate's text what it reads in the caller's. Else the statement would mean something else.

The gate reads a statement with a library, and writes it anew. Where the library takes a text otherwise than DuckDB,
nothing else would notice. So DuckDB parses both texts, and the two trees are compared. They may differ in what the gate
means to change: names of tables and of queries of a WITH, names of columns that had none, and the functions that turn
bytes into text and text into bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import StatementRefused
from headwater.query.gate.tables import NAMESPACES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Node = dict[str, Any]
_NOWHERE = (1 << 64) - 1
_SHOWN = 40
"""Characters of the statement that a message shows."""
_NO_MATTER = frozenset({"query_location", "named_param_map", "is_operator"})
_NO_TABLE = {"alias": "", "table_name": "", "schema_name": "", "catalog_name": ""}
_OPPOSITES = {"~~": "!~~", "~~*": "!~~*", "like_escape": "not_like_escape", "ilike_escape": "not_ilike_escape"}
"""By function, the one that gives the opposite."""
_ORDERS = {"ASCENDING": "ORDER_DEFAULT", "NULLS LAST": "ORDER_DEFAULT"}
"""What is the same as an order without these words."""
_PARTS = {"dow": "dayofweek", "doy": "dayofyear"}
"""By part of a date, as a statement may have it, the name that the gate writes."""
_SYNONYMS = {
    **dict.fromkeys(("**", "^", "power"), "pow"),
    **dict.fromkeys(("position", "strpos"), "instr"),
    **dict.fromkeys(("listagg", "group_concat"), "string_agg"),
    **dict.fromkeys(("min_by", "argmin"), "arg_min"),
    **dict.fromkeys(("max_by", "argmax"), "arg_max"),
    "^@": "starts_with",
}
"""Names of functions that the gate may write as another of the same function."""


def check_same(connection: DuckDBPyConnection, source: str, sql: str, topics: Mapping[str, str]) -> None:
    """Raise `StatementRefused` unless DuckDB reads in `sql`, which runs, what it reads in `source`, the caller's text.

    `topics` has the topics by their views. Nothing is run. Call it when the database is locked.
    """
    row = connection.execute("SELECT json_serialize_sql($1), json_serialize_sql($2)", [source, sql]).fetchone()
    assert row is not None
    try:
        written, ours = json.loads(row[0]), json.loads(row[1])
    except RecursionError as error:
        raise StatementRefused("the statement is nested too deeply") from error
    if written["error"]:
        place = _shown(source, int(written.get("position") or 0))
        raise StatementRefused(f"DuckDB cannot read the statement{place}: {written.get('error_message')}")
    found = Comparison(topics).difference(written, ours)
    if found is not None:
        raise StatementRefused(
            f"DuckDB may read the statement otherwise than Headwater{_shown(source, found)}: "
            "put brackets around this part and around what it is made of, or write it in another way"
        )


class Comparison:
    """Compares the trees of one statement."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        self._topics = topics
        self._queries: dict[str, str] = {}
        """By our name of a query of a WITH, the caller's in lower case."""

    def difference(self, written: Any, ours: Any) -> int | None:
        """Where the caller's tree differs from ours in more than the gate means to change; None if it does not.

        The place is in bytes of the caller's text.
        """
        waiting = [(written, ours, 0, "")]
        while waiting:
            one, other, place, key = waiting.pop()
            if isinstance(one, dict) and isinstance(other, dict):
                one, other = _unwrapped(_canonical(one), _canonical(other))
                found = one.get("query_location")
                place = found if isinstance(found, int) and found != _NOWHERE else place
                one, other = self._plain(one, other, key)
                if one.keys() != other.keys():
                    return place
                waiting += [(one[name], other[name], place, name) for name in reversed(one)]
            elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
                waiting += [(*pair, place, key) for pair in reversed(list(zip(one, other, strict=True)))]
            elif type(one) is not type(other) or one != other:
                return place
        return None

    def _plain(self, one: Node, other: Node, key: str) -> tuple[Node, Node]:
        """Two nodes without what does not matter, and without what the gate means to change."""
        one, other = _kept(one), _kept(other)
        if one.get("type") == other.get("type") == "BASE_TABLE":
            if not self._same_table(one, other):
                return one, {}
            one, other = {**one, **_NO_TABLE}, {**other, **_NO_TABLE}
        if "cte_name" in one and "cte_name" in other and self._same_query(one["cte_name"], other["cte_name"]):
            other["cte_name"] = one["cte_name"]
        if key == "map" and "key" in one and "key" in other and self._same_query(one["key"], other["key"]):
            other["key"] = one["key"]
        if one.get("type") == other.get("type") == "COLUMN_REF":
            for node in (one, other):
                node["column_names"] = [name.lower() for name in node["column_names"]]
        if one.get("type") == other.get("type") == "COLUMN_REF" and "." in other["column_names"][0]:
            for node in (one, other):  # the table is a topic with a dot in its name
                node["column_names"] = ".".join(node["column_names"])
        if key == "type_info" and other.get("type") == "UNBOUND_TYPE_INFO":  # a type such as JSON
            one["name"], other["name"] = str(one.get("name")).lower(), str(other["name"]).lower()
        if key == "type_info" and one.get("width") == one.get("scale") == other.get("width", 0) - 1:
            one["width"] = other["width"]  # .5 is written as 0.5
        if one.get("type") == "ARRAY_CONSTRUCTOR" and other.get("function_name") == "list_value":
            one, other = ({name: node[name] for name in ("alias", "children")} for node in (one, other))
        if key == "orders":
            for node in (one, other):
                node |= {name: _ORDERS.get(str(node.get(name)), node.get(name)) for name in ("type", "null_order")}
        if key == "select_list" and not one.get("alias"):
            one["alias"] = other.get("alias")
        if "function_name" in one and "function_name" in other:
            _name_alike(one, other)
        if one.get("ref_type") == "CROSS" and _is_true(other.get("condition")) and other.get("join_type") == "INNER":
            other |= {"ref_type": "CROSS", "condition": one.get("condition")}
        return one, other

    def _same_table(self, one: Node, other: Node) -> bool:
        name, ours = str(one["table_name"]), str(other["table_name"])
        if (one["alias"] or name) != other["alias"] or one["schema_name"] or one["catalog_name"]:
            return False
        topic = self._topics.get(ours)
        if topic is None:
            return self._same_query(name, ours)
        return topic in (name, *(name.removeprefix(space) for space in NAMESPACES))

    def _same_query(self, name: str, ours: str) -> bool:
        return self._queries.setdefault(ours, name.lower()) == name.lower()


def _name_alike(one: Node, other: Node) -> None:
    """Give two calls one form if the gate writes the first as the second."""
    for node in (one, other):
        node["schema"] = "" if node["schema"] == "main" else node["schema"]
        node["function_name"] = _SYNONYMS.get(node["function_name"], node["function_name"])
    if one["function_name"] == "string_agg" and len(one["children"]) == 1:
        one["children"] = [*one["children"], *(node for node in other["children"][1:2] if _text(node) == ",")]
    if one["function_name"] == "date_part" and len(one["children"]) == len(other["children"]) == 2:
        parts = [_text(node["children"][0]).lower() for node in (one, other)]
        if parts[0] and _PARTS.get(parts[0], parts[0]) == parts[1]:
            one["children"], other["children"] = one["children"][1:], other["children"][1:]
    if one["function_name"] == "length" and other["function_name"] == "octet_length":
        other["function_name"] = "length"


def _canonical(node: Node) -> Node:
    """A node in the one form of several that mean the same: `NOT x IS NULL` is `x IS NOT NULL`."""
    inner = _only_child(node) if node.get("type") == "OPERATOR_NOT" else None
    if inner is None:
        return node
    inner = _canonical(inner)
    if inner.get("type") == "OPERATOR_IS_NULL":
        return {**node, "type": "OPERATOR_IS_NOT_NULL", "children": inner["children"]}
    opposite = _OPPOSITES.get(inner.get("function_name", ""))
    return node if opposite is None else {**inner, "function_name": opposite, "alias": node["alias"]}


def _only_child(node: Node) -> Node | None:
    inner = node.get("children")
    return inner[0] if isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], dict) else None


def _kept(node: Node) -> Node:
    return {name: value for name, value in node.items() if name not in _NO_MATTER}


def _unwrapped(one: Node, other: Node) -> tuple[Node, Node]:
    """Two nodes without the functions that the gate puts around bytes and texts."""
    while _kind(one) != _kind(other):
        inner = _inner(other)
        if inner is None:
            break
        if _is_text_cast(one) and _kind(other)[1] == "decode":
            one = {**one["child"], "alias": one["alias"]}
        other = {**inner, "alias": other["alias"]}
    return one, other


def _kind(node: Node) -> tuple[object, object]:
    return node.get("type"), node.get("function_name")


def _inner(node: Node) -> Node | None:
    """What the gate has put a function around; None for another node."""
    around = node.get("type") == "OPERATOR_TRY" or node.get("function_name") in ("decode", "encode")
    return _only_child(node) if around else None


def _is_text_cast(node: Node) -> bool:
    return node.get("class") == "CAST" and node["cast_type"].get("id") == "VARCHAR"


def _shown(source: str, place: int) -> str:
    """A place in a text, for messages."""
    before = source.encode()[:place].decode(errors="ignore")
    near = source[len(before) :][:_SHOWN].split("\n")[0].strip()
    near = f" near {near!r}" if near else ""
    return f"{near} (line {before.count(chr(10)) + 1})"


def _text(node: Node) -> str:
    """The text that a constant is; empty for another node."""
    value = node.get("value")
    return str(value.get("value")) if isinstance(value, dict) and value["type"]["id"] == "VARCHAR" else ""


def _is_true(node: object) -> bool:
    """Whether a condition is `TRUE`, which DuckDB reads as a cast of a text."""
    return isinstance(node, dict) and node.get("class") == "CAST" and node["child"].get("value", {}).get("value") == "t"
