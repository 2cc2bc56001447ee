"""Errors over HTTP: problem documents (RFC 9457) with a stable `type`, and the page that explains each type.

A handler raises a `Refusal` of one of the kinds here, or any error of `headwater.errors`; `ERRORS` is the one place
that says which kind and status an error has. A family of calls that imitates another product has a `Style`, which
writes the same refusals in the form that its clients understand.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from headwater import errors as e
from headwater.errors import HeadwaterError, SchemaReason
from headwater.gateway.asgi import Headers

MEDIA_TYPE = "application/problem+json"
PATH = "/problems/"
CODE = "error_code"
"""The member of a refusal that has its number, where another product has numbers for errors."""
RETRY_SECONDS = 1
"""The `Retry-After` of answers that ask for another attempt."""


class Kind(msgspec.Struct, frozen=True):
    """A type of problem. The name never changes."""

    name: str
    status: int
    title: str
    meaning: str
    """What happened and what the caller should do, in one paragraph."""
    retry: bool = False
    """Whether the same request may succeed a moment later."""

    def __post_init__(self) -> None:
        if KINDS.setdefault(self.name, self) != self:
            raise ValueError(f"two kinds of problems have the name {self.name!r}")


KINDS: dict[str, Kind] = {}
"""All kinds by name. Route modules may declare further ones."""

BAD_REQUEST = Kind(
    "bad-request", 400, "The request is not valid",
    "The path, the query, a header or the body of the request is not what the call takes. `detail` says which part, "
    "and `errors` has one line for each. Nothing was changed. Correct the request; the same one fails again.",
)  # fmt: skip
NOT_AUTHENTICATED = Kind(
    "not-authenticated", 401, "The caller is not authenticated",
    "The gateway wants to know who calls. `WWW-Authenticate` names the accepted schemes: a user's name and password "
    "(Basic) or a token (Bearer). An unknown user and a wrong password get the same answer.",
)  # fmt: skip
NOT_ALLOWED = Kind(
    "not-allowed", 403, "The caller may not do this",
    "The access rules do not allow the operation to this user. `detail` names the operation and the resource. An "
    "operator can add a rule with `headwater acl add`.",
)  # fmt: skip
NOT_FOUND = Kind(
    "not-found", 404, "There is no such thing",
    "The path names something that does not exist, or that the caller may not describe: both look the same.",
)  # fmt: skip
NO_RECORD = Kind(
    "no-record", 404, "There is no such record",
    "The topic exists, but no record in it has this key, or the offset has no record: a transaction ended or was "
    "aborted there, is not committed yet, or left a gap.",
)  # fmt: skip
METHOD_NOT_ALLOWED = Kind(
    "method-not-allowed", 405, "The path does not take this method",
    "The path exists, but not for this method. `Allow` names the methods that it takes.",
)  # fmt: skip
NOT_ACCEPTABLE = Kind(
    "not-acceptable",
    406,
    "The answer has no such form",
    "`Accept` names only media types that the call cannot answer in.",
)
TOO_SLOW = Kind(
    "request-timeout", 408, "The request did not arrive in time",
    "The client stopped sending before the request was complete, for longer than `gateway.idle_ms`. The connection is "
    "closed. Nothing was changed.",
)  # fmt: skip
CONFLICT = Kind(
    "conflict", 409, "The present state contradicts the request",
    "The request names a state that is not the present one, or creates what exists already. The answer carries the "
    "present values where there are some. Nothing was changed. Look at them, then decide anew.",
)  # fmt: skip
EXISTS = Kind(
    "already-exists",
    409,
    "It exists already",
    "The request creates something whose name is taken. Nothing was changed.",
)
MIRRORED = Kind(
    "mirrored", 409, "Only a link writes to the topic",
    "A link copies the topic from another Kafka, at the offsets that the records have there. Nothing was appended. "
    "`headwater link promote` ends that: the topic then takes records of every producer.",
)  # fmt: skip
TOO_LARGE = Kind(
    "too-large", 413, "The request is too large",
    "The body or the number of records is above a limit of the gateway or of the topic (`gateway.body_bytes`, "
    "`gateway.records`, `max.message.bytes`). Nothing was changed. Send several smaller requests.",
)  # fmt: skip
MEDIA = Kind(
    "unsupported-media-type", 415, "The body has a form that the call does not take",
    "`Content-Type` is missing or is not one that the call accepts. Nothing was changed.",
)  # fmt: skip
UNPROCESSABLE = Kind(
    "unprocessable", 422, "The request contradicts itself or an earlier one",
    "The request is well-formed but cannot be carried out as it is. `detail` says why. Nothing was changed.",
)  # fmt: skip
TOO_MANY = Kind(
    "too-many-requests", 429, "The caller asks too often",
    "The caller is above its rate (`gateway.requests_per_second`), has too many requests, bytes of bodies or streams "
    "under way, or has failed to log in too often. Nothing was changed. Try again after the seconds in `Retry-After`.",
    retry=True,
)  # fmt: skip
OVER_QUOTA = Kind(
    "over-quota", 429, "The caller has used up its quota",
    "An operator has limited what the user may use: bytes appended, bytes read, a share of the time of the gateway, "
    "partitions created and deleted. `detail` names the quota. Nothing was changed. Try again after the "
    "seconds in `Retry-After`.", retry=True,
)  # fmt: skip
OUT_OF_RANGE = Kind(
    "offset-out-of-range", 416, "The partition does not have this offset",
    "The offset is before the first record that the partition still has, or behind its end. `start` and `end` say what "
    "there is. Begin at one of them.",
)  # fmt: skip
HEAD_TOO_LARGE = Kind(
    "head-too-large", 431, "The head of the request is too large",
    "The request line and the headers have more bytes than `gateway.head_bytes`. The connection is closed. Nothing was "
    "changed.",
)  # fmt: skip
INTERNAL = Kind(
    "internal-error", 500, "The gateway failed",
    "Something happened that should not happen. It may or may not have had an effect. The log of the gateway has the "
    "request id and the traceback.",
)  # fmt: skip
OVERLOADED = Kind(
    "overloaded", 429, "The gateway has too much to do",
    "A limit on connections, requests or bytes under way is reached, or the gateway is late with all that it does. "
    "Nothing was changed. Try again after the seconds in `Retry-After`, or ask another gateway.", retry=True,
)  # fmt: skip
UNAVAILABLE = Kind(
    "unavailable", 503, "The cluster cannot be reached",
    "The gateway does not reach the ledger or the object store, or has just started. Nothing was changed. Try again "
    "after the seconds in `Retry-After`, or ask another gateway.", retry=True,
)  # fmt: skip
STORE_FULL = Kind(
    "store-full", 507, "The store is full",
    "The ledger or the object store has no room for new data. Nothing was changed. Reading goes on. An operator must "
    "make room.", retry=True,
)  # fmt: skip
OUTCOME_UNKNOWN = Kind(
    "outcome-unknown", 504, "It is not known whether the request took effect",
    "A store failed after the request was sent to it. The request may or may not have taken effect. Repeat it with the "
    "same `Idempotency-Key`; without one, look before you repeat it.", retry=True,
)  # fmt: skip
DAMAGED = Kind(
    "damaged", 500, "Stored data is damaged",
    "An object does not have the content that was written. `headwater doctor` names what is affected. Other data can "
    "be read.",
)  # fmt: skip
STATEMENT_REFUSED = Kind(
    "statement-refused", 400, "The statement is not run",
    "The statement cannot be parsed, does more than read, or names a topic, a column or a function that is not there "
    "for the caller. `detail` says which. Correct the statement; the same one is refused again.",
)  # fmt: skip
QUERY_FAILED = Kind(
    "query-failed", 422, "The query failed",
    "The engine could not carry the statement out: a value that cannot be converted, a division by zero, a parameter "
    "of the wrong type. `detail` has the words of the engine. Correct the statement.",
)  # fmt: skip
QUERY_LIMIT = Kind(
    "query-limit", 422, "The query went beyond a limit",
    "The query took longer, or has a larger result, than `limits` of the request or the settings of the gateway allow. "
    "`detail` names the limit. Ask for less, or raise the limit.",
)  # fmt: skip
QUERY_CANCELLED = Kind(
    "query-cancelled", 409, "The query was cancelled",
    "The query was cancelled while it ran. `detail` says by which user, or why.",
)  # fmt: skip
NO_ENGINE = Kind(
    "no-engine", 503, "No engine is free",
    "Every place for queries is taken, or the process that answered has died. Try again after the seconds in "
    "`Retry-After`, or ask another gateway.", retry=True,
)  # fmt: skip

_BY_STATUS = {
    kind.status: kind
    for kind in (
        BAD_REQUEST, NOT_AUTHENTICATED, NOT_ALLOWED, NOT_FOUND, METHOD_NOT_ALLOWED, NOT_ACCEPTABLE, TOO_SLOW, CONFLICT,
        TOO_LARGE, MEDIA, UNPROCESSABLE, TOO_MANY, INTERNAL, UNAVAILABLE,
    )
}  # fmt: skip


class Row(NamedTuple):
    """What a kind of error is over HTTP."""

    problem: Kind
    rest: int = 0
    """The code of the REST Proxy in calls about topics and the content of requests; 0: it follows from the problem."""


BAD_VALUE, UNKNOWN_TOPIC = 40002, 40403
"""Codes of the REST Proxy: what Kafka refuses as invalid; a topic or a partition that does not exist."""
ERRORS = e.table({
    Row(INTERNAL): (
        e.HeadwaterError, e.ClientError, e.ObjectMissing, e.ForeignCommit, e.Truncated, e.Halted,
        e.LedgerWentBack, e.DutyFailed,
    ),
    Row(UNAVAILABLE): (e.Retriable, e.StoreUnavailable, e.EpochLost, e.NotReady, e.SnapshotGone, e.RegistryUnavailable),
    Row(STORE_FULL): (e.StoreFull,),
    Row(OUTCOME_UNKNOWN): (e.OutcomeUnknown,),
    Row(OVERLOADED): (e.Overloaded,),
    Row(TOO_MANY): (e.TooOften,),
    Row(OVER_QUOTA): (e.QuotaExceeded,),
    Row(NO_ENGINE): (e.NoEngine,),
    Row(BAD_REQUEST, BAD_VALUE): (
        e.BadInput, e.ConfigError, e.MissingExtra, e.InvalidName, e.InvalidPartitions, e.CorruptFrame, e.TooManyItems,
        e.CorruptBatch, e.InvalidRecord, e.InvalidTimestamp, e.UnsupportedBatch, e.OffsetOutOfRange, e.BadSchema,
        e.BadValue, e.CompactedTopic,
    ),
    Row(TOO_LARGE, BAD_VALUE): (e.TooLarge, e.OpensTooLarge),
    Row(NOT_FOUND, UNKNOWN_TOPIC): (e.NotFound,),
    Row(NO_RECORD, UNKNOWN_TOPIC): (e.NoRecord,),
    Row(EXISTS, BAD_VALUE): (e.Exists,),
    Row(UNPROCESSABLE, BAD_VALUE): (e.LimitReached, e.InternalTopic, e.SchemaRefused),
    Row(CONFLICT, BAD_VALUE): (e.Conflict,),
    Row(MIRRORED, BAD_VALUE): (e.Mirrored,),
    Row(STATEMENT_REFUSED, BAD_VALUE): (e.StatementRefused,),
    Row(QUERY_FAILED, BAD_VALUE): (e.QueryFailed,),
    Row(QUERY_LIMIT, BAD_VALUE): (e.QueryLimit,),
    Row(QUERY_CANCELLED, BAD_VALUE): (e.QueryCancelled,),
    Row(NOT_AUTHENTICATED): (e.NotAuthenticated,),
    Row(NOT_ALLOWED): (e.NotAllowed,),
    Row(DAMAGED): (e.Damaged,),
})  # fmt: skip
"""Every kind of error. A refusal of the schema registry has the status and the code of its reason instead."""

SCHEMA_CODES: Mapping[SchemaReason, int] = {
    SchemaReason.NO_SUBJECT: 40401,
    SchemaReason.NO_VERSION: 40402,
    SchemaReason.NO_SCHEMA: 40403,
    SchemaReason.SUBJECT_DELETED: 40404,
    SchemaReason.SUBJECT_NOT_DELETED: 40405,
    SchemaReason.VERSION_DELETED: 40406,
    SchemaReason.VERSION_NOT_DELETED: 40407,
    SchemaReason.NO_COMPATIBILITY: 40408,
    SchemaReason.NO_MODE: 40409,
    SchemaReason.INCOMPATIBLE: 40901,
    SchemaReason.BAD_SCHEMA: 42201,
    SchemaReason.BAD_VERSION: 42202,
    SchemaReason.BAD_COMPATIBILITY: 42203,
    SchemaReason.BAD_MODE: 42204,
    SchemaReason.NOT_PERMITTED: 42205,
    SchemaReason.REFERENCED: 42206,
    SchemaReason.BAD_SUBJECT: 42208,
    SchemaReason.TOO_LARGE: 42209,
}
"""The numbers that clients of Confluent's registry know. The first three digits are the status."""


class Refusal(HeadwaterError):
    """A request is refused, with a problem document as the answer. `more` are further members of the document."""

    def __init__(
        self, kind: Kind, detail: str = "", *, more: Mapping[str, object] | None = None, headers: Headers = ()
    ) -> None:
        super().__init__(detail or kind.title)
        self.kind = kind
        self.detail = detail
        self.more = dict(more or {})
        self.headers = headers

    @property
    def all_headers(self) -> Headers:
        """The headers of the answer, with a `Retry-After` where another attempt makes sense."""
        named = {name.lower() for name, _ in self.headers}
        again = (("Retry-After", str(RETRY_SECONDS)),) if self.kind.retry and "retry-after" not in named else ()
        return (*self.headers, *again)


def refusal_of(error: BaseException) -> Refusal:
    """How an error is told to the caller. What nobody foresaw is told without its words, which may be secret."""
    if isinstance(error, Refusal):
        return error
    problem = e.row_of(ERRORS, error).problem if isinstance(error, HeadwaterError) else INTERNAL
    if problem is INTERNAL:
        return Refusal(INTERNAL)
    match error:
        case e.SchemaRefused():
            code = SCHEMA_CODES[error.reason]
            return refusal_with(code // 100, str(error), more={CODE: code})
        case e.OffsetOutOfRange(partition=int()):
            more = {"partition": error.partition, "start": error.start, "end": error.end}
            return Refusal(OUT_OF_RANGE, str(error), more=more)
        case e.NotAuthenticated() if error.challenge:
            return Refusal(problem, str(error), headers=(("WWW-Authenticate", error.challenge),))
        case e.QuotaExceeded():
            seconds = max(math.ceil(error.seconds), RETRY_SECONDS)
            return Refusal(problem, str(error), headers=(("Retry-After", str(seconds)),))
    return Refusal(problem, str(error))


def refusal_with(
    status: int, detail: str, *, more: Mapping[str, object] | None = None, headers: Headers = ()
) -> Refusal:
    """The refusal for a status that another library chose."""
    kind = _BY_STATUS.get(status, BAD_REQUEST if status < HTTPStatus.INTERNAL_SERVER_ERROR else INTERNAL)
    return Refusal(kind, detail, more=more, headers=headers)


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an answer."""

    data: bytes
    media_type: str


Style = Callable[[Refusal, Mapping[bytes, bytes]], Body]
"""Writes a refusal in the form that a client expects, which may depend on the headers of its request."""


def document(refusal: Refusal, headers: Mapping[bytes, bytes] | None = None) -> Body:
    """A refusal as a problem document."""
    kind = refusal.kind
    told: dict[str, object] = {"type": f"{PATH}{kind.name}", "title": kind.title, "status": kind.status}
    if refusal.detail:
        told["detail"] = refusal.detail
    told.update((name, value) for name, value in refusal.more.items() if name not in told)
    return Body(msgspec.json.encode(told), MEDIA_TYPE)


def style_of(path: str, styles: Mapping[str, Style]) -> Style:
    """The form of refusals below a path."""
    return next((style for prefix, style in styles.items() if path.startswith(prefix)), document)


def explained(kind: Kind) -> str:
    """The page that explains a kind of problem, as HTML that loads nothing else."""
    again = (
        "The same request may succeed later." if kind.retry else "The same request fails again, unless things change."
    )
    title = html.escape(f"{kind.title} ({kind.status})")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><h1>{title}</h1><p><code>{PATH}{kind.name}</code></p><p>{html.escape(kind.meaning)}</p>"
        f"<p>{again if kind is not INTERNAL else ''}</p></body></html>"
    )
