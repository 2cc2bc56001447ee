"""A connection to a cluster: what users work with. `headwater.connect` makes one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self

from headwater.errors import BadInput
from headwater.query.wanted import FOREVER, Wanted, check_names
from headwater.sdk.asking import body_of
from headwater.sdk.consumer import Consumer, Source
from headwater.sdk.records import Appended, Data, Headers, NewRecord, Place, Record, Start, Time, as_ms
from headwater.sdk.result import Parameter, Result
from headwater.sdk.scan import Scan

BATCH_RECORDS = 1_000
BATCH_BYTES = 1 << 20
"""How many records, and about how many bytes of them, `produce_many` appends at once."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition of a topic."""

    partition: int
    start: int
    """The first offset of the log."""
    end: int
    """The offset behind the last record."""
    stable: int
    """Where readers of committed records stop."""
    settled: int
    """Records before this offset are in the tables."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic."""

    name: str
    id: str
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str]
    """The configs that are set for the topic, as far as the caller may know them."""


class Connection(ABC):
    """A cluster. Usable as `with headwater.connect(…) as cluster`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    # --- topics ----------------------------------------------------------------------------------------

    @abstractmethod
    def topics(self) -> list[str]:
        """The names of the topics that the caller may describe, sorted."""

    @abstractmethod
    def describe(self, topic: str) -> TopicInfo:
        """A topic with the offsets of its partitions. Raises `NotFound` if there is none."""

    @abstractmethod
    def create_topic(self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. Raises `Exists` if there is one of that name."""

    def topic(self, name: str) -> Topic:
        """A topic by its name. Nothing is looked up yet."""
        return Topic(self, name)

    # --- writing ---------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: Time | None = None,
        idempotency_key: str | None = None,
        expected_offset: int | None = None,
    ) -> Place:
        """Append a record; returns where it is. It is in the log then.

        With `expected_offset` the record is appended only if it gets that offset. Otherwise `Conflict` is raised,
        which has the present one. With an `idempotency_key` the record is appended once, however often the call is
        repeated within 24 hours, and the call itself repeats what was lost. Without one it raises `OutcomeUnknown` if
        the answer was lost: the record may or may not be in the log.
        """
        record = NewRecord(value=value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        return self.append(topic, record, idempotency_key, expected_offset)

    def produce_many(
        self,
        topic: str,
        records: Iterable[NewRecord | Data],
        *,
        batch_records: int = BATCH_RECORDS,
        batch_bytes: int = BATCH_BYTES,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append many records, in batches; returns how many, and their offsets. A batch is appended whole or not.

        Each batch has an idempotency key of its own, and is repeated until it is in the log. So every record is
        appended once, whatever dies in between. Records of a partition keep their order. After an error the batches
        before it are in the log. With an `idempotency_key` a second call with the same records, also of another
        process, appends only those that the first call did not.
        """
        if not 0 < batch_records <= 10_000 or batch_bytes <= 0:
            raise BadInput("`batch_records` must be between 1 and 10,000, and `batch_bytes` above 0")
        return self.append_many(topic, records, batch_records, batch_bytes, idempotency_key)

    @abstractmethod
    def append(self, topic: str, record: NewRecord, key: str | None, expected: int | None) -> Place:
        """See `produce`."""

    @abstractmethod
    def append_many(
        self, topic: str, records: Iterable[NewRecord | Data], count: int, size: int, key: str | None
    ) -> Appended:
        """See `produce_many`."""

    # --- reading ---------------------------------------------------------------------------------------

    def consume(
        self,
        topic: str,
        *,
        group: str | None = None,
        start: Start = "earliest",
        follow: bool = True,
        decode: bool = False,
    ) -> Consumer:
        """The committed records of a topic, partition by partition in order of their offsets.

        `start` is `"earliest"`, `"latest"`, a `datetime`, or offsets by partition. With a `group` the records behind
        the group's committed offsets come first, and `start` counts only where there are none; `commit()` of the
        result commits what was read. Without `follow` the iteration ends where the topic ended when it began. With
        `decode` records have their keys and values by their schemas, too (`Record.decoded_value`).
        """
        return Consumer(self.source(topic, group, start, decode), group=group, follow=follow)

    @abstractmethod
    def source(self, topic: str, group: str | None, start: Start, decode: bool) -> Source:
        """What a consumer reads. See `consume`."""

    @abstractmethod
    def scan_wanted(self, topic: str, wanted: Wanted, columns: list[str] | None) -> Scan:
        """See `scan`."""

    def scan(
        self,
        topic: str,
        *,
        columns: Sequence[str] | None = None,
        partitions: Collection[int] | None = None,
        from_offset: int | Mapping[int, int] | None = None,
        until_offset: int | Mapping[int, int] | None = None,
        from_time: Time | None = None,
        until_time: Time | None = None,
        version: int | None = None,
    ) -> Scan:
        """The rows of a topic: all that is in its tables, and what is not settled yet.

        `columns` are those of the tables; by default all, the typed ones too. A name that the table does not have
        raises `BadInput` when rows are read. Offsets are for all partitions, or by partition; those `until` are not
        included. Times are of records. With a `version` the rows are those of that version of the table.
        """
        for number in partitions or ():
            if not isinstance(number, int) or number < 0:
                raise BadInput(f"{number!r} is not the number of a partition")
        first, firsts = _offsets(from_offset, 0)
        last, lasts = _offsets(until_offset, FOREVER)
        wanted = Wanted(
            partitions=None if partitions is None else sorted(set(partitions)),
            from_offset=first,
            from_offsets=firsts,
            until_offset=last,
            until_offsets=lasts,
            from_ms=-FOREVER if from_time is None else as_ms(from_time),
            until_ms=FOREVER if until_time is None else as_ms(until_time),
            version=version,
        )
        if columns is not None:
            check_names(columns)
        return self.scan_wanted(topic, wanted, None if columns is None else list(columns))

    # --- looking up ------------------------------------------------------------------------------------

    @abstractmethod
    def get(self, topic: str, partition: int, offset: int, *, decode: bool = False) -> Record | None:
        """The committed record at an offset; None if the offset has no record, as where a transaction ended.

        With `decode` it has its key and its value by their schemas, too.
        Raises `BadInput` for an offset that the partition does not have.
        """

    @abstractmethod
    def latest(self, topic: str, key: Data, *, partition: int | None = None, decode: bool = False) -> Record | None:
        """The newest committed record with a key; None if there is none. A tombstone is a record whose value is None.

        Every record acknowledged before the call counts. If several partitions have the key, the newest by timestamp
        counts; `partition` looks in one only. With `decode` it has its key and its value by their schemas, too.
        """

    # --- asking ----------------------------------------------------------------------------------------

    def sql(
        self,
        sql: str,
        *,
        parameters: Sequence[Parameter] = (),
        engine: Literal["auto", "duckdb", "spark"] = "auto",
        as_of: int | str | datetime | Mapping[int, int] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """The result of a SQL statement. Topics are its tables; every record acknowledged before the call is seen.

        `parameters` are the values of `?`. `as_of` asks for an older state of the tables: a version, a time, the tag of
        an hour such as `"2026-11-17T22"`, or the offsets by partition behind the last record. After `timeout` seconds
        the gateway gives the query up; its settings have limits too.
        """
        return self.ask(body_of(sql, parameters, engine, as_of, timeout))

    @abstractmethod
    def ask(self, body: Mapping[str, Any]) -> Result:
        """The result of a query, by the body of its request (`docs/guides/sql.md`)."""


def _offsets(given: int | Mapping[int, int] | None, default: int) -> tuple[int, dict[int, int]]:
    """An offset for all partitions, and those by partition."""
    by_partition = dict(given) if isinstance(given, Mapping) else {}
    alone = given if isinstance(given, int) else default
    for offset in (alone, *by_partition.values()):
        if not isinstance(offset, int) or offset < 0:
            raise BadInput(f"{offset!r} is not an offset")
    return alone, by_partition


class Topic:
    """A topic of a connection."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}>"

    def describe(self) -> TopicInfo:
        """See `Connection.describe`."""
        return self._connection.describe(self.name)

    def produce(self, value: Data, **options: Any) -> Place:
        """See `Connection.produce`."""
        return self._connection.produce(self.name, value, **options)

    def produce_many(self, records: Iterable[NewRecord | Data], **options: Any) -> Appended:
        """See `Connection.produce_many`."""
        return self._connection.produce_many(self.name, records, **options)

    def consume(self, **options: Any) -> Consumer:
        """See `Connection.consume`."""
        return self._connection.consume(self.name, **options)

    def get(self, partition: int, offset: int, *, decode: bool = False) -> Record | None:
        """See `Connection.get`."""
        return self._connection.get(self.name, partition, offset, decode=decode)

    def latest(self, key: Data, **options: Any) -> Record | None:
        """See `Connection.latest`."""
        return self._connection.latest(self.name, key, **options)

    def scan(self, **options: Any) -> Scan:
        """See `Connection.scan`."""
        return self._connection.scan(self.name, **options)
