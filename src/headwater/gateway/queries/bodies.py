"""What a request for a query says: the statement, its parameters, the engine, the state of the tables, limits.

`question_of` makes the `Question` of it that the service answers.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headwater.errors import BadInput
from headwater.gateway.problems import NOT_ACCEPTABLE, Refusal
from headwater.gateway.records.bodies import ms_of_text
from headwater.gateway.records.values import from_base64
from headwater.gateway.results.forms import MEDIA, About, Column, Form
from headwater.gateway.services import Call
from headwater.query.asking import PRESENT, AsOf, Engine, Limits, Query, Question, Value
from headwater.state.cluster.access import AclResource, Operation

MAX_SQL = 100_000
"""Characters of a statement."""
MAX_PARAMETERS = 1_000
MAX_PARTITIONS = 100_000
LAST = (1 << 63) - 1
SHOWN_SQL = 1_000
"""Characters of a statement in a listing."""
NO_SECONDS, NO_COUNT = 1e9, 1 << 62
"""Limits that limit nothing: those of the settings count."""
_ALIKE = {
    "application/ndjson": Form.NDJSON,
    "application/jsonl": Form.NDJSON,
    "application/parquet": Form.PARQUET,
    "application/x-parquet": Form.PARQUET,
    "*/*": Form.JSON,
    "application/*": Form.JSON,
    "text/*": Form.CSV,
}
Integer = Annotated[int, msgspec.Meta(ge=-LAST - 1, le=LAST)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=LAST)]


class Bytes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter that is not text."""

    base64: str
    """Its bytes in base64."""


class AsOfBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of the tables that is asked for. At most one of `version`, `time` and `tag` is given."""

    version: Offset | None = None
    """A version of the table."""
    time: Offset | str | None = None
    """What the table showed at a time: milliseconds since 1970, or RFC 3339."""
    tag: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    """The tag of an hour, such as `2026-11-17T22`."""
    offsets: dict[Annotated[int, msgspec.Meta(ge=0)], Offset] = {}
    """By partition, the offset behind the last one. Other partitions end where the rest says."""


class LimitsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the query is to be cut off. The settings have limits too; the tighter ones count."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=NO_SECONDS)] | None = None
    """How long it may take."""
    rows: Annotated[int, msgspec.Meta(ge=1, le=NO_COUNT)] | None = None
    """How many rows the result may have."""
    bytes: Annotated[int, msgspec.Meta(ge=1, le=NO_COUNT)] | None = None
    """How many bytes the result may have, as Arrow batches."""


class SqlBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query."""

    sql: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SQL)]
    """One statement that reads. Topics are its tables."""
    parameters: Annotated[
        list[Integer | float | str | bool | Bytes | None], msgspec.Meta(max_length=MAX_PARAMETERS)
    ] = []
    """The values of `?` in the statement, in order."""
    engine: Literal["auto", "duckdb", "spark"] = "auto"
    """Which engine answers."""
    as_of: AsOfBody | None = None
    """The state of tables that the statement itself does not pin. Missing: the present."""
    limits: LimitsBody | None = None
    """Tighter limits than those of the settings."""
    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")] | None = None
    """An id for the query, by which it can be watched and cancelled before the answer begins. Missing: a random one."""


class SqlAnswer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of a query as JSON."""

    query: str
    """The id of the query."""
    engine: str
    """The engine that answered."""
    reason: str
    """Why this engine, in a sentence."""
    versions: dict[str, int]
    """By topic, the version of its table that was shown. Records that were not settled were shown too."""
    columns: list[Column]
    """The columns of the result."""
    rows: list[list[msgspec.Raw]]
    """The rows, each a list of cells. Bytes that are not UTF-8 are `{"base64": "…"}`."""
    row_count: int | None = None
    """How many rows there are. Missing if the result is not whole."""
    error: dict[str, msgspec.Raw] | None = None
    """The problem that ended the query early. If it is there, the rows are not all that were asked for."""


class QueryLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query that runs, or has ended a while ago."""

    id: str
    """The id of the query."""
    asker: str
    """Who has asked."""
    sql: str
    """The statement. A listing has its beginning only."""
    engine: str
    """The engine that answers."""
    reason: str
    """Why this engine, in a sentence."""
    versions: dict[str, int]
    """By topic, the version of its table that is shown."""
    notes: list[str] = []
    """What the caller should know about the answer, in sentences."""
    phase: str
    """`waiting`, `running`, `done`, `failed` or `cancelled`."""
    percent: float
    """How far the engine is, from 0 to 100, as far as it knows."""
    rows: int
    """Rows that the caller has got."""
    result_bytes: int
    """Bytes that the caller has got, as Arrow batches."""
    files: int
    """Files of the tables that are read."""
    file_bytes: int
    """Their size."""
    hot_bytes: int
    """Bytes of records that are not settled yet."""
    seconds: float
    """How long the query runs, or has run."""
    error: str
    """What ended it early; empty if nothing has."""


def question_of(call: Call, body: SqlBody) -> Question:
    """The question of a caller. Raises `BadInput` for values that contradict each other."""
    return Question(
        sql=body.sql,
        asker=call.caller.principal,
        account=call.caller.account,
        readable=lambda topic: call.may(Operation.READ, AclResource.TOPIC, topic),
        parameters=tuple(_value(number, given) for number, given in enumerate(body.parameters, 1)),
        engine=Engine(body.engine),
        as_of=PRESENT if body.as_of is None else _as_of(body.as_of),
        limits=None if body.limits is None else _limits(body.limits),
        id=body.id or "",
    )


def form_of(accept: str, named: str | None) -> Form:
    """The form of the answer: the one that is named, else the one that a client likes best."""
    if named is not None:
        return Form(named)
    best, liking = None, 0.0
    for part in accept.split(",") if accept.strip() else ["*/*"]:
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = _weight(parameters)
        form = _ALIKE.get(name) or next((form for form, media in MEDIA.items() if media == name), None)
        if form is not None and weight > liking:
            best, liking = form, weight
    if best is None:
        raise Refusal(NOT_ACCEPTABLE, f"the answer is one of {', '.join(MEDIA.values())}")
    return best


def about_of(query: Query) -> About:
    """What is known of a query before its first row."""
    columns = [Column(field.name, str(field.type)) for field in query.schema]
    return About(
        query=query.id,
        engine=str(query.engine),
        reason=query.reason,
        versions=dict(query.versions),
        columns=columns,
        notes=list(query.notes),
    )


def line_of(query: Query, shown: int = SHOWN_SQL) -> QueryLine:
    """A query as it is shown, with so many characters of its statement."""
    progress = query.progress
    return QueryLine(
        id=query.id,
        asker=query.asker,
        sql=query.sql if len(query.sql) <= shown else f"{query.sql[: shown - 1]}…",
        engine=str(query.engine),
        reason=query.reason,
        versions=dict(query.versions),
        notes=list(query.notes),
        phase=str(progress.phase),
        percent=round(progress.percent, 1),
        rows=progress.rows,
        result_bytes=progress.result_bytes,
        files=progress.files,
        file_bytes=progress.file_bytes,
        hot_bytes=progress.hot_bytes,
        seconds=round(progress.seconds, 3),
        error=progress.error,
    )


def _value(number: int, given: int | float | str | bool | Bytes | None) -> Value:
    return from_base64(f"parameters[{number}].base64", given.base64) if isinstance(given, Bytes) else given


def _as_of(given: AsOfBody) -> AsOf:
    if sum(one is not None for one in (given.version, given.time, given.tag)) > 1:
        raise BadInput("`as_of`: `version`, `time` and `tag` exclude each other")
    if len(given.offsets) > MAX_PARTITIONS:
        raise BadInput(f"`as_of`: more than {MAX_PARTITIONS} partitions")
    at = ms_of_text("as_of.time", None if given.time is None else str(given.time))
    return AsOf(version=given.version, at_ms=at, tag=given.tag, offsets=given.offsets)


def _limits(given: LimitsBody) -> Limits:
    return Limits(
        seconds=NO_SECONDS if given.seconds is None else given.seconds,
        rows=NO_COUNT if given.rows is None else given.rows,
        result_bytes=NO_COUNT if given.bytes is None else given.bytes,
    )


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
