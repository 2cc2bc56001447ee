"""The options of a Spark source: what users give as text becomes one checked value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from headwater.errors import BadInput, ConfigError
from headwater.log.segment.schema import segment_schema
from headwater.query.scan import MAX_NAMED
from headwater.query.wanted import FOREVER, Wanted
from headwater.sdk.http import Http, Login
from headwater.sdk.records import as_ms
from headwater.sdk.remote import RemoteConnection

if TYPE_CHECKING:
    import pyarrow as pa

SPLIT_BYTES = 64 << 20
"""Stored bytes of an input partition, at most about."""
TIMEOUT = 30.0
EARLIEST, LATEST = "earliest", "latest"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Bound:
    """Offsets for all partitions, and others by partition."""

    alone: int
    by_partition: Mapping[int, int] = field(default_factory=dict)

    def of(self, partition: int) -> int:
        """The offset of a partition."""
        return self.by_partition.get(partition, self.alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to read, and from where."""

    url: str
    login: Login
    timeout: float
    topic: str
    partitions: Sequence[int] | None
    start: Bound
    """The first offsets; 0 is the beginning, whatever retention has left."""
    from_end: bool
    """A stream begins with what is appended after its start."""
    end: Bound
    from_ms: int
    until_ms: int
    version: int | None
    split_bytes: int
    max_rows: int | None
    """Rows of a batch of a stream, at most."""
    fail_on_loss: bool
    """Whether a stream ends with an error if retention removed rows that it has not read."""

    @property
    def wanted(self) -> Wanted:
        """The rows of a batch read."""
        return Wanted(
            partitions=self.partitions,
            from_offset=self.start.alone,
            from_offsets=self.start.by_partition,
            until_offset=self.end.alone,
            until_offsets=self.end.by_partition,
            from_ms=self.from_ms,
            until_ms=self.until_ms,
            version=self.version,
        )

    @contextmanager
    def connected(self) -> Iterator[RemoteConnection]:
        """A connection to the gateway."""
        connection = RemoteConnection(Http(self.url, self.login, timeout=self.timeout))
        try:
            yield connection
        finally:
            connection.close()


BATCH_ONLY = ("endingOffsets", "startingTimestamp", "endingTimestamp", "version")
STREAM_ONLY = ("maxRowsPerBatch", "failOnDataLoss")
NAMES = (
    *("url", "user", "password", "token", "ca", "timeout", "topic", "path", "partitions", "startingOffsets"),
    *("splitBytes", *BATCH_ONLY, *STREAM_ONLY),
)


def options_of(given: Mapping[str, str], *, streaming: bool | None = None) -> Options:
    """Check the options of a source. Spark does not tell whether upper or lower case letters were used.

    `streaming` is None while it is not known what they are for.
    """
    texts = {name.lower(): text for name, text in given.items()}
    known = {name.lower(): name for name in NAMES}
    if unknown := sorted(set(texts) - set(known)):
        raise ConfigError(f"there is no option {unknown[0]!r}: the options are {', '.join(NAMES)}")
    if streaming is not None:
        for name in BATCH_ONLY if streaming else STREAM_ONLY:
            if name.lower() in texts:
                raise ConfigError(f"{name} is an option of `{'read' if streaming else 'readStream'}` only")

    def option(name: str, read: Callable[[str], _T], default: _T) -> _T:
        text = texts.get(name.lower())
        if text is None:
            return default
        try:
            return read(text)
        except (ValueError, BadInput, msgspec.DecodeError) as error:
            raise ConfigError(f"the option {name} is {text!r}: {error}") from None

    url, topic = texts.get("url"), texts.get("topic") or texts.get("path")
    if not url or not topic:
        raise ConfigError("give the options `url`, the address of a gateway, and `topic`")
    from_end = texts.get("startingoffsets", "").lower() == LATEST
    if from_end and streaming is False:
        raise ConfigError("startingOffsets is 'latest': that is for `readStream` only")
    found = Options(
        url=url,
        login=Login(texts.get("user"), texts.get("password"), texts.get("token"), texts.get("ca")),
        timeout=option("timeout", _seconds, TIMEOUT),
        topic=topic,
        partitions=option("partitions", _numbers, None),
        start=Bound(0) if from_end else option("startingOffsets", lambda text: _bound(text, EARLIEST, 0), Bound(0)),
        from_end=from_end,
        end=option("endingOffsets", lambda text: _bound(text, LATEST, FOREVER), Bound(FOREVER)),
        from_ms=option("startingTimestamp", _time, -FOREVER),
        until_ms=option("endingTimestamp", _time, FOREVER),
        version=option("version", _count, None),
        split_bytes=option("splitBytes", _positive, SPLIT_BYTES),
        max_rows=option("maxRowsPerBatch", _positive, None),
        fail_on_loss=option("failOnDataLoss", _yes, True),
    )
    Http(found.url, found.login, timeout=found.timeout).close()  # checks address and log-in
    return found


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("it must not be negative")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("it must be above 0")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError("it must be above 0")
    return number


def _yes(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _numbers(text: str) -> list[int]:
    return sorted({_count(item) for item in text.split(",")})


def _bound(text: str, word: str, default: int) -> Bound:
    """A word for all, a number for all, or numbers by partition in JSON, such as `{"0": 17}`."""
    if text.strip().lower() == word:
        return Bound(default)
    if text.strip().isdecimal():
        return Bound(int(text))
    found = msgspec.json.decode(text, type=dict[int, int], strict=False)
    if any(number < 0 or offset < 0 for number, offset in found.items()):
        raise ValueError("it must not be negative")
    return Bound(default, found)


def _time(text: str) -> int:
    """Milliseconds since 1970, or a date in ISO's form with a time zone."""
    return int(text) if text.lstrip("-").isdecimal() else as_ms(datetime.fromisoformat(text))


def checked(wanted: pa.Schema, own: pa.Schema) -> pa.Schema:
    """The columns that a user's schema chooses, of those that a topic has. Their types must be those of the tables.

    Of a struct in a typed column some fields may be chosen.
    """
    log = segment_schema().names
    for name, chosen in zip(wanted.names, wanted.types, strict=True):
        if name not in own.names:
            raise BadInput(f"there is no column {name!r}: the columns are {', '.join(own.names[:MAX_NAMED])}")
        kind = own.field(name).type
        if not _fits(chosen, kind) or (name in log and not _fits(kind, chosen)):
            raise ConfigError(f"the column {name} has the type {kind}, not {chosen}: cast it after reading")
    return wanted


def _fits(wanted: pa.DataType, own: pa.DataType) -> bool:
    """Whether a type is one of ours, perhaps with fewer fields. Names inside lists, and nulls, do not matter."""
    import pyarrow as pa

    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        known = {own.field(i).name: own.field(i).type for i in range(own.num_fields)}
        chosen = [wanted.field(i) for i in range(wanted.num_fields)]
        return all(one.name in known and _fits(one.type, known[one.name]) for one in chosen)
    if pa.types.is_list(own) and pa.types.is_list(wanted):
        return _fits(wanted.value_type, own.value_type)
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        return wanted.key_type.equals(own.key_type) and _fits(wanted.item_type, own.item_type)
    return bool(wanted.equals(own))
