"""Transactions in tests of nodes: the commands themselves, and batches that are part of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.app.node import Node
from headwater.log.batch import CONTROL_BIT, HEADER_BYTES, TRANSACTIONAL_BIT, split_batches
from headwater.state.commands.transactions import EndTransaction, InitTransaction, JoinTransaction
from headwater.state.results import Judgement, Transacted
from headwater.types import Buffer, Domain
from tests.support.batches import Rec, batch

ONE = Domain(1)
MINUTE_MS = 60_000


@dataclass(slots=True)
class Transactor:
    """A producer with a transactional id, by the commands that its requests become. It numbers its batches."""

    node: Node
    id: str
    producer: int
    epoch: int
    sequences: dict[int, int]
    """The next sequence of each stream."""

    @classmethod
    async def start(cls, node: Node, id: str, producer: int) -> Transactor:
        """The first producer of a transactional id, with a producer id of the test's choice."""
        [result] = await node.domains[ONE].submit([InitTransaction(id, MINUTE_MS, producer, -1, -1)])
        assert isinstance(result, Transacted)
        assert result.judgement is Judgement.DONE
        return cls(node, id, result.producer, result.epoch, {})

    async def join(self, *streams: int) -> None:
        """Make streams part of the transaction, as clients of the first generation do."""
        await self._submit(JoinTransaction(self.id, self.producer, self.epoch, streams, ()))

    def batch(self, stream: int, records: Sequence[Rec | bytes], codec: int = 0) -> bytes:
        """The next batch for a stream."""
        sequence = self.sequences.get(stream, 0)
        self.sequences[stream] = sequence + len(records)
        producer = (self.producer, self.epoch, sequence)
        return batch(records, producer=producer, attributes=TRANSACTIONAL_BIT, codec=codec)

    async def end(self, *, commit: bool, bump: bool = True) -> None:
        """End the transaction. With `bump` the next one has the next epoch, and sequences start anew."""
        await self._submit(EndTransaction(self.id, self.producer, self.epoch, commit, bump, self.producer + 1_000))
        if bump:
            self.sequences.clear()

    async def _submit(self, command: JoinTransaction | EndTransaction) -> None:
        [result] = await self.node.domains[ONE].submit([command])
        assert isinstance(result, Transacted)
        assert result.judgement is Judgement.DONE, result
        self.producer, self.epoch = result.producer, result.epoch


def is_control(data: Buffer) -> bool:
    """Whether a batch is a control batch."""
    return len(data) >= HEADER_BYTES and bool(data[22] & CONTROL_BIT)


def data_of(records: Buffer) -> bytes:
    """The batches without control batches."""
    return b"".join(bytes(one) for one in split_batches(records) if not is_control(one))
