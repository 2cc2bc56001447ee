"""Dead letters: records that could not be decoded by a schema, and decoding them again."""

from __future__ import annotations

from base64 import b64encode

import msgspec
from litestar import get, post
from litestar.params import JSONBody

from headwater.gateway.admin import letters as admin
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, cursor_of, key_of, paged
from headwater.gateway.parameters import TopicName
from headwater.gateway.problems import BAD_REQUEST, Refusal
from headwater.gateway.records.forms import HeaderLine
from headwater.gateway.records.values import ABSENT, Format, shown
from headwater.gateway.services import TheCall
from headwater.lake.letters import BadRow, Place
from headwater.types import Domain

_ROWS = "dead letters"


class LettersLine(msgspec.Struct, frozen=True):
    """A topic that names a dead-letter topic, or has records that could not be decoded."""

    topic: str
    """The name of the topic."""
    dead_letter_topic: str
    """The topic to which such records are copied; empty if there is none."""
    rows: int
    """Rows of the table that could not be decoded."""
    waiting: bool
    """Whether some of them are still to be copied."""


class UndecodedLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record that could not be decoded."""

    partition: int
    """The number of the partition."""
    offset: int
    """The offset of the record."""
    timestamp: int
    """Milliseconds since 1970."""
    error: str
    """Why the record could not be decoded: the kind of the failure, and the reason."""
    key: msgspec.Raw = ABSENT
    """The key as text; null for no key."""
    key_base64: str | None = None
    """The bytes of the key in base64, if they are not text."""
    value: msgspec.Raw = ABSENT
    """The value as text; null for a tombstone."""
    value_base64: str | None = None
    """The bytes of the value in base64, if they are not text."""
    headers: list[HeaderLine] = []
    """The headers of the record, in order."""
    headers_base64: str | None = None
    """All headers as the producer sent them, in base64, if their names are no text."""


class Replay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is decoded again."""

    everything: bool = False
    """All records, also those that could be decoded."""


class Replayed(msgspec.Struct, frozen=True):
    """What will be decoded again."""

    topic: str
    """The name of the topic."""
    files: int
    """The files whose records the compactor decodes again."""


@get("/v1/dlq", operation_id="listDeadLetters", tags=["dead letters"])
async def list_letters(call: TheCall, limit: Limit = DEFAULT_ITEMS, cursor: Next = "") -> Listing[LettersLine]:
    """The topics with records that could not be decoded, and those that name a dead-letter topic.

    The listing has topics that the caller may DESCRIBE.
    """
    own = call.services
    await own.catch_up(*(Domain(domain) for domain in own.domains))
    found = [LettersLine(one.topic, one.dead_letter_topic, one.rows, one.waiting) for one in admin.summaries(call)]
    page, then = paged("dlq", found, lambda one: one.topic, limit=limit, cursor=cursor, most=own.own.page_items)
    return Listing(page, then)


@get("/v1/dlq/{name:str}", operation_id="showDeadLetters", tags=["dead letters"])
async def show_letters(
    call: TheCall, name: TopicName, limit: Limit = DEFAULT_ITEMS, cursor: Next = ""
) -> Listing[UndecodedLine]:
    """Records of a topic's table that could not be decoded, with the reason and their bytes.

    The caller needs the right to READ the topic. A record whose file is replaced while pages are read may be shown
    twice; none is missed. A page may have fewer records than asked for.
    """
    most = min(limit, call.services.own.page_items)
    rows, place = await admin.rows(call, name, most, _place(cursor) if cursor else (0, 0))
    then = cursor_of(_ROWS, f"{place[0]}.{place[1]}") if place is not None else None
    return Listing([_line(partition, row) for partition, row in rows], then)


@post("/v1/dlq/{name:str}/replay", operation_id="replayDeadLetters", tags=["dead letters"], status_code=202)
async def replay_letters(call: TheCall, name: TopicName, data: JSONBody[Replay]) -> Replayed:
    """Decode records again that could not be decoded, after the schema was mended. The compactor does that soon.

    Their letters stay where they are, and no new ones are written. The caller needs the right to ALTER the topic.
    """
    return Replayed(name, await admin.replay(call, name, data.everything))


def _place(cursor: str) -> Place:
    key = key_of(_ROWS, cursor, str)
    file, _, number = str(key).partition(".")
    if not (file.isascii() and file.isdigit() and number.isascii() and number.isdigit()):
        raise Refusal(BAD_REQUEST, "`next` is not a cursor of this listing")
    return int(file), int(number)


def _line(partition: int, row: BadRow) -> UndecodedLine:
    return UndecodedLine(
        partition,
        row.offset,
        row.timestamp,
        row.error,
        *shown(row.key, Format.TEXT),
        *shown(row.value, Format.TEXT),
        [HeaderLine(name, *shown(value, Format.TEXT)) for name, value in row.headers],
        b64encode(row.raw_headers).decode() if row.raw_headers is not None else None,
    )


ROUTES = (list_letters, show_letters, replay_letters)
