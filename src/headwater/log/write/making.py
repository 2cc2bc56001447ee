"""Records become batches as a topic demands them, and units, for processes that append records of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from headwater.client.records import Headers, Record, encode_batch
from headwater.configs.topics import TopicConfig
from headwater.errors import HeadwaterError
from headwater.log.batch import Batch, BatchRules, unchecked
from headwater.log.write.demands import rules_of, target_of
from headwater.log.write.opening import NO_LIMIT, Target, Work, prepare
from headwater.log.write.part import Together
from headwater.log.write.writer import Writer
from headwater.state.commands.streams import AnyCondition
from headwater.state.results import UnitResult

RECORD_BYTES = 40
"""What a record takes in a batch beside its key, its value and its headers, at most."""
HEADER_BYTES = 10
"""What a header takes beside its name and its value, at most."""
BATCH_BYTES = 61


class Demands(msgspec.Struct, frozen=True):
    """What a topic demands of records."""

    partitions: int
    rules: BatchRules
    target: Target | None

    @classmethod
    def of(cls, partitions: int, config: TopicConfig, opened_bytes: int) -> Demands:
        """`opened_bytes` is the limit of one batch, uncompressed."""
        return cls(partitions, rules_of(config, opened_bytes), target_of(config, opened_bytes))

    @property
    def room(self) -> int:
        """The bytes of records that fit into one batch."""
        return self.rules.max_bytes - BATCH_BYTES


def most_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The bytes that a record takes at most."""
    size = RECORD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_BYTES + 4 * len(name) + len(content or b"")
    return size


def cuts(sizes: Iterable[int], room: int) -> list[list[int]]:
    """The numbers of the records of each batch: as many as fit. A record that is too large is alone."""
    found: list[list[int]] = []
    left = 0
    for number, size in enumerate(sizes):
        if not found or size > left:
            found.append([])
            left = room
        found[-1].append(number)
        left -= size
    return found


def made(records: Sequence[Record], demands: Demands, now_ms: int) -> Batch:
    """A batch of records. It passed the checks that a producer's batch gets, and is stored as the topic wants it."""
    return prepare(unchecked(encode_batch(records)), Work(demands.rules, now_ms, demands.target), NO_LIMIT)[0]


async def appended(writer: Writer, batches: Sequence[tuple[int, Batch]], conditions: list[AnyCondition]) -> UnitResult:
    """Append batches, each with its stream, as one unit; returns when it is judged.

    Raises the error of a unit that has no result.
    """
    decided: asyncio.Future[UnitResult | HeadwaterError] = asyncio.get_running_loop().create_future()

    def settle(outcome: UnitResult | HeadwaterError) -> None:
        if not decided.done():
            decided.set_result(outcome)

    unit = Together(batches, conditions, settle)
    writer.append_unit(unit)
    try:
        outcome = await decided
    finally:
        writer.withdraw_unit(unit)  # only if this task was cancelled is it left
    if isinstance(outcome, HeadwaterError):
        raise outcome
    return outcome
