"""Random SQL of DuckDB: expressions and statements over the tables of `TABLES`. Many of them DuckDB refuses."""

from __future__ import annotations

from random import Random

COLUMNS = (
    "range::INT AS x, (range * 7) % 5 AS y, ['abc', 'a', '', NULL, 'k1'][range + 1] AS s, [range, 2] AS l, "
    "{'a': range, 'b': 'b'} AS t, '{\"a\": 1}'::JSON AS j, '\\x61'::BLOB AS b, DATE '2024-01-31' + range::INT AS d"
)
TABLES = {
    "orders": f'SELECT {COLUMNS}, range AS "offset" FROM range(5)',
    "Clicks": f'SELECT {COLUMNS}, range AS "offset" FROM range(1, 4)',
}
"""By topic of `samples.READABLE`, the rows."""


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", " ").split(" ; ")]


_VALUES = _listed(r"""
    1 ; 2 ; 5 ; 0 ; 1.5 ; 1e3 ; NULL ; TRUE ; FALSE ; 'a' ; '1' ; 'abc' ; 'k.' ; x ; y ; s ; l ; t ; j ; b ; d ; x ;
    y ; s ; "offset" ; '\x6b\x31' ; '\x61'::BLOB ; [1,2] ; {'a':1} ; MAP{'a':1} ; DATE '2024-01-31' ; INTERVAL 1 DAY ;
    INTERVAL '2 days' ; INTERVAL '1.5' DAY ; TIMESTAMP '2024-01-31'
""")
_BEFORE = ["-", "~", "NOT ", "+"]
_BETWEEN = _listed(r"""
    + ; - ; * ; / ; // ; % ; ** ; ^ ; << ; >> ; & ; | ; || ; = ; <> ; < ; >= ; != ; == ; AND ; OR ; LIKE ; ILIKE ; ~ ;
    !~ ; GLOB ; -> ; ->> ; + ; - ; = ; AND ; OR ; SIMILAR TO ; NOT LIKE ; NOT ILIKE ; NOT SIMILAR TO ;
    IS DISTINCT FROM ; IS NOT DISTINCT FROM
""")
_AFTER = _listed(r"""
    IS NULL ; IS NOT NULL ; NOTNULL ; ISNULL ; IS TRUE ; IS NOT FALSE ; IS UNKNOWN ; IN (1, 2) ; NOT IN (1, 2) ;
    BETWEEN 0 AND 2 ; NOT BETWEEN 1 AND 5 ; ::INT ; ::VARCHAR ; ::BOOLEAN ; [1] ; [1:2] ; .a ; ->'a' ; ->>'$.a' ;
    AT TIME ZONE 'UTC' ; COLLATE NOCASE
""")
_FORMS = _listed(r"""
    ({0}) ; ({0}) ; CASE {0} WHEN {1} THEN {2} ELSE {3} END ; CASE WHEN {0} THEN {1} END ;
    CASE s WHEN {0} THEN 1 END ; {0} IN ({1}, {2}) ; {0} NOT IN ({1}, {2}) ; {0} BETWEEN {1} AND {2} ;
    {0} NOT BETWEEN {1} AND {2} ; {0} IN (SELECT {1}) ; {0} NOT IN (SELECT x FROM orders) ; EXISTS (SELECT {0}) ;
    (SELECT {0}) ; (SELECT max({0}) FROM orders) ; {0} = ANY ([1, 2]) ; {0} = ANY (SELECT {1}) ;
    {0} LIKE {1} ESCAPE '!' ; length({0}) ; coalesce({0}, {1}) ; lower({0}) ; if({0}, {1}, {2}) ; nullif({0}, {1}) ;
    greatest({0}, {1}) ; [{0}, {1}] ; {{'a': {0}, 'b': {1}}} ; ({0}, {1}) ; row({0}) ; struct_pack(a := {0}) ;
    list_value({0}, {1})[1] ; list_transform(l, lambda q: q + {0}) ; list_transform([1, 2], q -> {0}) ;
    list_filter(l, q -> q > {0}) ; [q + {0} FOR q IN l IF q > {1}] ; l[{0}] ; l[{0}:{1}] ; t.a + {0} ;
    CAST({0} AS {type}) ; TRY_CAST({0} AS {type}) ; ({0})::{type} ; extract(year FROM {0}) ;
    date_trunc('month', {0}) ; date_diff('day', {0}, {1}) ; {0} - INTERVAL '1 month' ; INTERVAL ({0}) DAY ;
    d + INTERVAL 2 HOUR ; strftime({0}, '%Y') ; substring({0} FROM 1 FOR 2) ; trim({0}) ; trim(BOTH 'a' FROM {0}) ;
    position({0} IN {1}) ; regexp_matches({0}, {1}) ; json_extract(j, {0}) ; j->'a' ; j->>'a' ; j->>'$.a' = {0} ;
    count(j->'a') ; concat({0}, {1}) ; printf('%s', {0}) ; sum({0}) ; count(*) ; count(DISTINCT {0}) ;
    max({0}) FILTER (WHERE {1}) ; list({0} ORDER BY {1}) ; list({0} ORDER BY {1})[1] ;
    list({0} ORDER BY {1} DESC NULLS LAST) ; string_agg({0}, ',' ORDER BY {1}) ; arg_max({0}, {1}) ;
    percentile_cont(0.5) WITHIN GROUP (ORDER BY {0} DESC) ; median({0}) ; sum({0}) OVER () ;
    row_number() OVER (PARTITION BY {0} ORDER BY {1} DESC, x) ; lag({0}, 1) OVER (ORDER BY x) ;
    sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) ;
    first_value({0} IGNORE NULLS) OVER (ORDER BY x)
""")
_TYPES = _listed(r"""
    INT ; BIGINT ; VARCHAR ; DOUBLE ; DECIMAL(10,2) ; INT[] ; BLOB ; JSON ; BOOLEAN ; DATE ; TIMESTAMP ; TIMESTAMPTZ ;
    HUGEINT
""")
_COLUMNS = _listed(r"""
    * ; * ; x ; x, y ; * EXCLUDE (b) ; * REPLACE (y + 1 AS y) ; COLUMNS('[xy]') ; DISTINCT x ; DISTINCT ON (y) x ;
    o.* ; o.x
""")
_SPARK_BETWEEN = _listed("""
    + ; - ; * ; / ; % ; & ; | ; ^ ; || ; = ; <> ; < ; >= ; == ; <=> ; AND ; OR ; LIKE ; ILIKE ; RLIKE ; NOT LIKE ;
    NOT RLIKE ; IS DISTINCT FROM
""")
_SPARK_AFTER = _listed("""
    IS NULL ; IS NOT NULL ; IS TRUE ; IS NOT FALSE ; IN (1, 2) ; NOT IN (1, 2) ; BETWEEN 0 AND 2 ; NOT BETWEEN 1 AND 5
""")
_JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", "INNER JOIN"]
_SETS = ["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "UNION ALL BY NAME", "EXCEPT ALL", "INTERSECT ALL"]


def expression(chance: Random, depth: int) -> str:
    """An expression. Brackets are rare, so that it depends on how operators bind."""
    if depth <= 0:
        return chance.choice(_VALUES)
    kind = chance.random()
    if kind < 0.1:
        return chance.choice(_BEFORE) + expression(chance, depth - 1)
    if kind < 0.25:
        return f"{expression(chance, depth - 1)} {chance.choice(_AFTER)}"
    if kind < 0.55:
        parts = [expression(chance, depth - 1 - (i > 0)) for i in range(4)]
        return chance.choice(_FORMS).format(*parts, type=chance.choice(_TYPES))
    return f"{expression(chance, depth - 1)} {chance.choice(_BETWEEN)} {expression(chance, depth - 1)}"


def spark_expression(chance: Random, depth: int) -> str:
    """An expression of operators that Spark has, too."""
    if depth <= 0:
        return chance.choice(["x", "y", "s", "1", "2.5", "'a'", "NULL", "TRUE"])
    kind = chance.random()
    if kind < 0.15:
        return chance.choice(["-", "~", "NOT "]) + spark_expression(chance, depth - 1)
    if kind < 0.3:
        return f"{spark_expression(chance, depth - 1)} {chance.choice(_SPARK_AFTER)}"
    if kind < 0.4:
        return f"({spark_expression(chance, depth - 1)})"
    left, right = spark_expression(chance, depth - 1), spark_expression(chance, depth - 1)
    return f"{left} {chance.choice(_SPARK_BETWEEN)} {right}"


def statement(chance: Random) -> str:
    """A statement with clauses of many kinds."""
    return _with(chance) if chance.random() < 0.2 else _query(chance, 2)


def _with(chance: Random) -> str:
    if chance.random() < 0.3:
        step = f"SELECT n + 1, {_plain(chance)} FROM w, orders WHERE n < 3 AND x = n"
        return f"WITH RECURSIVE w(n, x) AS (SELECT 1, {_plain(chance)} FROM orders UNION ALL {step}) {_from_w(chance)}"
    how = chance.choice(["", "", "MATERIALIZED ", "NOT MATERIALIZED "])
    return f"WITH w AS {how}({_query(chance, 1)}), v(a) AS (SELECT 1 FROM w) {_from_w(chance)}"


def _from_w(chance: Random) -> str:
    return chance.choice(["SELECT * FROM w", "FROM w", "SELECT w.* FROM w, w u", "SELECT count(*) FROM w WHERE x = 1"])


def _plain(chance: Random) -> str:
    return expression(chance, chance.choice([0, 0, 1, 1, 2]))


def _source(chance: Random, depth: int) -> str:
    kind = chance.random()
    if kind < 0.45:
        return chance.choice(["orders", "Clicks", "orders AS o", "orders o", "topics.orders", '"orders" AS o'])
    if kind < 0.55 and depth:
        return f"({_query(chance, depth - 1)}) AS o"
    if kind < 0.6:
        return "(VALUES (1, 'a'), (2, NULL)) AS o(x, s)"
    if kind < 0.65:
        return chance.choice(["range(3) AS o(x)", "unnest([1, 2]) AS o(x)", "generate_series(1, 3) o(x)"])
    left, right = chance.choice(["orders AS o", "orders o"]), chance.choice(["Clicks AS p", "Clicks p"])
    if kind < 0.75:
        return f"{left}, {right}" if chance.random() < 0.5 else f"{left} CROSS JOIN {right}"
    if kind < 0.8:
        return chance.choice(["orders o, unnest(o.l) u(x)", "orders o, LATERAL (SELECT o.x + 1) u(z)"])
    how = f"USING ({chance.choice(['x', 'x, y'])})" if chance.random() < 0.4 else f"ON o.x = p.y OR {_plain(chance)}"
    joined = f"{left} {chance.choice(_JOINS)} {right} {how}"
    return joined if chance.random() < 0.7 else f"{joined}, range(2) r(i)"


def _query(chance: Random, depth: int) -> str:
    if depth and chance.random() < 0.15:
        return f"{_select(chance, depth - 1)} {chance.choice(_SETS)} {_select(chance, depth - 1)}{_tail(chance)}"
    return _select(chance, depth) + _tail(chance)


def _select(chance: Random, depth: int) -> str:
    source = _source(chance, depth)
    if chance.random() < 0.1:
        return f"FROM {source}{_where(chance)}"
    columns = [chance.choice(_COLUMNS)] if chance.random() < 0.3 else []
    columns += [_named(chance) for _ in range(chance.choice([1, 1, 2]) if columns == [] else chance.choice([0, 1]))]
    grouped = ""
    if chance.random() < 0.25:
        keys = chance.choice(["x", "y", "1", "ALL", "ROLLUP (x, y)", "CUBE (x, y)", "GROUPING SETS ((x), (y), ())"])
        columns = ["x" if "x" in keys else "y", f"{chance.choice(['sum', 'max', 'count', 'list'])}({_plain(chance)})"]
        having = f" HAVING {_plain(chance)}" if chance.random() < 0.3 else ""
        grouped = f" GROUP BY {keys}{having}"
    qualified = " QUALIFY row_number() OVER (ORDER BY x) < 3" if chance.random() < 0.08 else ""
    return f"SELECT {', '.join(columns)} FROM {source}{_where(chance)}{grouped}{qualified}"


def _named(chance: Random) -> str:
    return _plain(chance) + chance.choice(["", "", " AS z", ' AS "offset"', " z"])


def _where(chance: Random) -> str:
    return f" WHERE {_plain(chance)}" if chance.random() < 0.4 else ""


def _tail(chance: Random) -> str:
    order = chance.choice(["1", "1 DESC", "x", "ALL", "y DESC NULLS FIRST, x", _plain(chance)])
    first = f" ORDER BY {order}" if chance.random() < 0.35 else ""
    limit = chance.choice([" LIMIT 2", " LIMIT 1 OFFSET 1", " OFFSET 1", " LIMIT 40%", " LIMIT (1 + 1)"])
    return first + (limit if chance.random() < 0.25 else "")
