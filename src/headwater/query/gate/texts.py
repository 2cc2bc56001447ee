"""Keys and values are bytes. A statement may treat them as text and as JSON all the same.

- `value->>'user'` and functions of JSON read the bytes as JSON; NULL where they are no JSON.
- `key = 'abc'` compares bytes with the bytes of the text, so it is exact, and files can be skipped by it.
- `value LIKE '%x%'`, `lower(key)` and other functions of text read the bytes as UTF-8; NULL where they are not UTF-8.
- `CAST(value AS INT)` goes through the text. In DuckDB a CAST to text decodes, instead of showing bytes as `\\xAB`.

A column that is changed like this keeps the name that it has in the statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.gate.dialects import DIALECTS, forget_extent
from headwater.query.gate.parsing import place_of
from headwater.query.gate.shapes import OF_TOPICS, Columns, Scope, columns_of, is_bytes, renamed

_TEXT_WORDS = """
    ascii bit_length char_length character_length concat concat_ws contains damerau_levenshtein ends_with endswith
    find_in_set format format_string group_concat initcap instr jaccard jaro_similarity jaro_winkler_similarity lcase
    left levenshtein listagg locate lower lpad ltrim ord position prefix printf regexp_count regexp_extract
    regexp_extract_all regexp_full_match regexp_instr regexp_like regexp_matches regexp_replace regexp_split_to_array
    regexp_substr replace reverse right rlike rpad rtrim soundex split split_part starts_with startswith str_split
    str_split_regex string_agg string_split string_split_regex strip_accents strlen strpos strptime substr substring
    substring_index suffix to_date to_timestamp translate trim try_strptime ucase unicode upper url_decode url_encode
"""
_TEXT = frozenset(_TEXT_WORDS.split())
"""Functions of text. Those that engines have for bytes too (`md5`, `hex`, `sha256`, `base64`) are not among them."""
_JSON_WORDS = """
    from_json from_json_strict get_json_object json json_array_length json_contains json_each json_exists json_extract
    json_extract_path json_extract_path_text json_extract_string json_keys json_object_keys json_pretty json_structure
    json_transform json_transform_strict json_tree json_tuple json_type json_valid json_value parse_json schema_of_json
    try_parse_json
"""
_JSON = frozenset(_JSON_WORDS.split())
"""Functions whose first argument is JSON."""
_PLAIN = _TEXT - {"group_concat", "listagg", "string_agg"} | _JSON | {"try", "decode", "encode", "coalesce", "nullif"}
_UNIT_FIRST = frozenset({"timestampdiff", "timestampadd", "dateadd", "date_add", "datediff", "date_diff"})
_UNITS = frozenset(
    {"year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second", "millisecond", "microsecond"}
)
_AGREEING = frozenset({"coalesce", "greatest", "ifnull", "lag", "lead", "least", "nullif", "nvl"})
"""Functions whose arguments become one type."""
_UNTRIED = frozenset({"json_each", "json_tree", "json_valid"})
_COMPARING = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_MATCHING = (exp.Like, exp.ILike, exp.SimilarTo, exp.RegexpLike, exp.RegexpILike, exp.Glob)
_QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values, exp.Table)
_SOURCES = ("with_", "from_", "joins", "laterals")
_TEXT_TYPES = exp.DataType.TEXT_TYPES
_BYTE_TYPES = frozenset({exp.DataType.Type.BINARY, exp.DataType.Type.VARBINARY, exp.DataType.Type.BLOB})


class Texts:
    """Changes the tree of one statement, in which tables have names of ours."""

    def __init__(self, engine: Engine, typed: Mapping[str, Sequence[str]]) -> None:
        """`typed` has the names of the typed columns by view."""
        self._duckdb = engine is Engine.DUCKDB
        self._named: dict[str, Columns] = {
            view: [*OF_TOPICS, *((name.lower(), False) for name in names)] for view, names in typed.items()
        }
        """By name, the topics and the queries of WITH so far."""
        self.byte_parameters: set[str] = set()
        """Names of parameters that are compared with bytes."""

    def change(self, tree: exp.Expr) -> None:
        """Change a statement in place."""
        self._query(tree, [])

    # --- queries ---------------------------------------------------------------------------------------

    def _query(self, node: exp.Expr, scopes: list[Scope]) -> Columns:
        """Change a query, and tell its columns."""
        with_ = node.args.get("with_")
        if with_ is not None:
            for query in with_.expressions:
                self._with(query, bool(with_.args.get("recursive")), scopes)
        if isinstance(node, exp.SetOperation):
            left, right = self._query(node.this, scopes), self._query(node.expression, scopes)
            both = [(name, raw and i < len(right) and right[i][1]) for i, (name, raw) in enumerate(left)]
            self._rest(node, ("with_", "this", "expression"), [*scopes, Scope({"": both})])
            return both
        if isinstance(node, exp.Select):
            return self._select(node, scopes)
        if isinstance(node, exp.Subquery):
            scope = Scope()
            self._source(node, scope, scopes)
            self._rest(node, ("with_", "this", "alias", "joins"), [*scopes, scope])
            return next(iter(scope.tables.values()), [])
        self._rest(node, ("with_",), scopes)
        return []

    def _with(self, query: exp.Expr, recursive: bool, scopes: list[Scope]) -> None:
        alias = query.args["alias"]
        first = query.this.this if recursive and isinstance(query.this, exp.SetOperation) else None
        if first is not None:
            self._named[alias.name] = renamed(self._peek(first, scopes), alias)
        self._named[alias.name] = renamed(self._query(query.this, scopes), alias)

    def _peek(self, query: exp.Expr, scopes: list[Scope]) -> Columns:
        """The columns of a query, which is left as it is."""
        return self._query(query.copy(), scopes)

    def _select(self, select: exp.Select, scopes: list[Scope]) -> Columns:
        scope = Scope()
        inner = [*scopes, scope]
        start = select.args.get("from_")
        if start is not None:
            self._source(start.this, scope, scopes)
        for join in select.args.get("joins") or ():
            self._source(join.this, scope, scopes)
            self._rest(join, ("this",), inner)
        for lateral in select.args.get("laterals") or ():
            self._source(lateral, scope, scopes)
        given = columns_of(select, inner)
        names = [(item.alias.lower(), is_bytes(item.this, inner)) for item in select.expressions if _is_alias(item)]
        for item in list(select.expressions):
            self._projection(item, inner)
        order = select.args.get("order")
        if order is not None:
            self._rest(order, (), [*inner, Scope({"": names})])
        self._rest(select, (*_SOURCES, "expressions", "order"), inner)
        return given

    def _source(self, node: exp.Expr, scope: Scope, scopes: list[Scope]) -> None:
        """Enter a table of a FROM into its scope. It may use the tables before it."""
        alias = node.args.get("alias")
        columns: Columns = []
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and alias is None:
            self._source(node.this, scope, scopes)
            for join in node.args.get("joins") or ():
                self._source(join.this, scope, scopes)
                self._rest(join, ("this",), [*scopes, scope])
            return
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            columns = self._named.get(node.name, [])
        elif isinstance(node, exp.Subquery):
            columns = self._query(node.this, [*scopes, scope])
        elif isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
            columns = self._query(node.this.this, [*scopes, scope])
        else:
            self._rest(node, ("alias", "joins"), [*scopes, scope])
        scope.tables[node.alias.lower() or f"?{len(scope.tables)}"] = renamed(columns, alias)
        for join in node.args.get("joins") or ():
            self._source(join.this, scope, scopes)
            self._rest(join, ("this",), [*scopes, scope])

    def _projection(self, item: exp.Expr, scopes: list[Scope]) -> None:
        """Change a column of a SELECT. It keeps its name."""
        if isinstance(item, exp.Alias | exp.Column | exp.Star):
            self._change(item, scopes)
            return
        before = _name_of(item)
        holder = exp.Paren(this=item.copy())
        item.replace(holder)
        self._change(holder.this, scopes)
        after = holder.this
        holder.replace(exp.alias_(after, before[:200], quoted=True) if _name_of(after) != before else after)

    def _rest(self, node: exp.Expr, without: Sequence[str], scopes: list[Scope]) -> None:
        """Change what is in a part of the tree, but for some of its arguments."""
        for key, value in list(node.args.items()):
            if key in without:
                continue
            for child in list(value) if isinstance(value, list) else [value]:
                if isinstance(child, exp.Expr):
                    self._change(child, scopes)

    # --- expressions -----------------------------------------------------------------------------------

    def _change(self, node: exp.Expr, scopes: list[Scope]) -> None:
        """Change an expression, its inner parts first."""
        if isinstance(node, _QUERIES):
            self._query(node, scopes)
            return
        for child in list(node.iter_expressions()):
            self._change(child, scopes)
        match node:
            case exp.JSONExtract() | exp.JSONExtractScalar():
                self._json_operator(node, scopes)
            case exp.Cast():
                self._cast(node, scopes)
            case exp.In() | exp.Between():
                self._compare(node.this, _compared(node), scopes)
            case exp.Case():
                self._case(node, scopes)
            case exp.If():
                self._agree([node.args.get("true"), node.args.get("false")], scopes)
            case _ if isinstance(node, _COMPARING):
                self._compare(node.this, [node.expression], scopes)
                self._compare(node.expression, [node.this], scopes)
            case _ if isinstance(node, _MATCHING):
                self._as_text(node.this, scopes)
            case exp.DPipe():
                self._as_text(node.this, scopes)
                self._as_text(node.expression, scopes)
            case exp.Func():
                self._function(node, scopes)

    def _json_operator(self, node: exp.Expr, scopes: list[Scope]) -> None:
        raw = is_bytes(node.this, scopes)
        if not self._duckdb:
            if raw:
                node.this.replace(self._text(node.this))
            node.set("expression", _path(node.expression))
            return
        if raw:
            node.this.replace(self._text(node.this))
            self._try(node)

    def _cast(self, node: exp.Cast, scopes: list[Scope]) -> None:
        kind = node.to.this
        if kind in _BYTE_TYPES or not is_bytes(node.this, scopes):
            return
        if self._duckdb:
            decoded = exp.Anonymous(this="decode", expressions=[node.this.copy()])
            lenient = isinstance(node, exp.TryCast) and _is_plain(node)
            text = exp.Anonymous(this="try", expressions=[decoded]) if lenient else decoded
            node.replace(text) if kind in _TEXT_TYPES else node.set("this", text)
        elif kind not in _TEXT_TYPES:
            node.set("this", self._text(node.this))

    def _case(self, case: exp.Case, scopes: list[Scope]) -> None:
        """`CASE key WHEN 'a'` compares, and all that a CASE may give has one type."""
        branches = case.args["ifs"]
        if case.this is not None:
            self._compare(case.this, [branch.this for branch in branches], scopes)
        self._agree([*(branch.args["true"] for branch in branches), case.args.get("default")], scopes)

    def _agree(self, values: Sequence[exp.Expr | None], scopes: list[Scope]) -> None:
        """Values that become one type: texts become bytes if another one of them is bytes."""
        given = [value for value in values if value is not None]
        for value in given:
            if is_bytes(value, scopes):
                self._compare(value, [other for other in given if other is not value], scopes)

    def _compare(self, side: exp.Expr, others: Sequence[exp.Expr], scopes: list[Scope]) -> None:
        """Compare bytes with the bytes of texts."""
        if isinstance(side, exp.Tuple):
            for other in others:
                if isinstance(other, exp.Tuple):
                    for pair in zip(side.expressions, other.expressions, strict=False):
                        self._compare(pair[0], [pair[1]], scopes)
            return
        if not is_bytes(side, scopes):
            return
        for other in others:
            while isinstance(other, exp.Any | exp.All | exp.Paren) and isinstance(other.this, exp.Paren | exp.Array):
                other = other.this
            if isinstance(other, exp.Array):
                self._compare(side, other.expressions, scopes)
            elif isinstance(other, exp.Placeholder | exp.Parameter):
                self.byte_parameters.add(other.name)
            elif self._is_text(other):
                other.replace(self._bytes(other.copy()))

    def _is_text(self, node: exp.Expr) -> bool:
        match node:
            case exp.Literal():
                return bool(node.is_string)
            case exp.Paren():
                return self._is_text(node.this)
            case exp.Anonymous():
                name = node.name.lower()
                if name == "try" and node.expressions:
                    return self._is_text(node.expressions[0])
                return name in _TEXT or name in ("decode", "json_extract_string", "get_json_object", "hex", "md5")
            case exp.Cast():
                return node.to.this in _TEXT_TYPES
            case exp.JSONExtractScalar() | exp.DPipe() | exp.Trim() | exp.Substring() | exp.Concat():
                return True
            case _:
                return False

    def _function(self, node: exp.Func, scopes: list[Scope]) -> None:
        name = node.name.lower() if isinstance(node, exp.Anonymous) else node.sql_name().lower()
        if name in _JSON and node.expressions:
            self._json_function(node, name, scopes)
        elif name in _AGREEING:
            self._agree(list(node.iter_expressions()), scopes)
        elif name in _TEXT:
            for child in list(node.iter_expressions()):
                self._as_text(child, scopes)
        elif name == "length" and self._duckdb and node.expressions and is_bytes(node.expressions[0], scopes):
            node.set("this", "octet_length")

    def _json_function(self, node: exp.Func, name: str, scopes: list[Scope]) -> None:
        first = node.expressions[0]
        if not is_bytes(first, scopes):
            return
        first.replace(self._text(first))
        if self._duckdb and name not in _UNTRIED:
            self._try(node)

    def _try(self, node: exp.Expr) -> None:
        """NULL instead of an error, for text that is not JSON. What may fail inside is tried by itself too (`_text`):
        DuckDB takes parts that it finds twice out of the TRY."""
        if _is_plain(node):
            node.replace(exp.Anonymous(this="try", expressions=[node.copy()]))

    def _as_text(self, node: exp.Expr | None, scopes: list[Scope]) -> None:
        inner = node.this if isinstance(node, exp.Order | exp.Distinct) else node
        if isinstance(inner, exp.Expr) and is_bytes(inner, scopes):
            inner.replace(self._text(inner))

    def _text(self, node: exp.Expr) -> exp.Expr:
        """The text of bytes; NULL if they are not UTF-8. In DuckDB those of an aggregate are an error then."""
        if not self._duckdb:
            return exp.cast(node.copy(), exp.DataType.Type.TEXT)
        decoded = exp.Anonymous(this="decode", expressions=[node.copy()])
        return exp.Anonymous(this="try", expressions=[decoded]) if _is_plain(node) else decoded

    def _bytes(self, node: exp.Expr) -> exp.Expr:
        """The bytes of a text."""
        if not self._duckdb:
            return exp.cast(node, exp.DataType.Type.BINARY)
        return exp.Anonymous(this="encode", expressions=[node])


def mend_arrows(tree: exp.Expr) -> None:
    """In `f(value->'a')` the parser takes the arrow for that of a lambda, which never gives a constant."""
    for node in list(tree.find_all(exp.Lambda)):
        start = node.this
        while isinstance(start, exp.JSONExtract | exp.JSONExtractScalar):
            start = start.this
        names = node.expressions
        if len(names) == 1 and isinstance(names[0], exp.Identifier) and isinstance(start, exp.Literal):
            for arrow in node.find_all(exp.JSONExtract, exp.JSONExtractScalar):
                forget_extent(arrow)
            found = exp.JSONExtract(this=exp.Column(this=names[0].copy()), expression=start.copy())
            if start is node.this:
                node.replace(found)
            else:
                start.replace(found)
                node.replace(node.this)


def mend_units(tree: exp.Expr) -> None:
    """In `timestampdiff(HOUR, a, b)` the first argument is a word, not a column."""
    for node in tree.find_all(exp.Anonymous):
        first = node.expressions[0] if len(node.expressions) == 3 else None
        if node.name.lower() in _UNIT_FIRST and isinstance(first, exp.Column) and first.name.lower() in _UNITS:
            first.replace(exp.Var(this=first.name))


def _is_plain(node: exp.Expr) -> bool:
    """Whether DuckDB takes an expression inside of TRY: it has no aggregate, no window and no subquery."""
    return node.find(exp.Query, exp.Window, exp.AggFunc) is None and not any(
        call.name.lower() not in _PLAIN for call in node.find_all(exp.Anonymous)
    )


def _name_of(item: exp.Expr) -> str:
    """The name of a column without an alias: the expression, more or less as it was written."""
    return item.sql(dialect=DIALECTS[Engine.DUCKDB], normalize_functions=False).replace('"', "")


def _is_alias(item: exp.Expr) -> bool:
    return isinstance(item, exp.Alias)


def _compared(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Between):
        return [node.args["low"], node.args["high"]]
    return list(node.expressions)


def _path(node: exp.Expr) -> exp.Expr:
    """A path for Spark, of what DuckDB's operators take: a key, an index, or a path from `$` on."""
    if not isinstance(node, exp.Literal) or (node.is_string and node.name.startswith("$")):
        return node
    if not node.is_string:
        return exp.Literal.string(f"$[{node.name}]")
    if "'" in node.name or "]" in node.name:
        raise StatementRefused(f"the key {node.name!r} needs a path, such as '$.a'{place_of(node)}")
    return exp.Literal.string(f"$['{node.name}']")
