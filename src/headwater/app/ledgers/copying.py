"""Copies a cluster's metadata from one ledger to another, between any two backends.

Only the position in a state depends on the backend: positions in etcd are revisions, in SQLite they are consecutive. So
a copy folds each domain to its end, gives the state a position of the target, and writes it as a checkpoint there. Two
records without commands provide two such positions, for two checkpoints of the same state: as always, the pointer names
two. Objects stay where they are.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headwater.clock import Chance, Clock
from headwater.errors import ConfigError, Damaged, Retriable, Truncated
from headwater.ledger.contract import Ledger, Pointer
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import (
    READ_CHUNK,
    check_dense,
    encode_checkpoint,
    load_state,
    path_of,
    record_of,
    replay,
)
from headwater.replica.domains import new_state
from headwater.replica.membership import SESSION_SECONDS
from headwater.state.machine import State
from headwater.state.records import encode_record
from headwater.types import CLUSTER, STREAM_DOMAINS, Domain, Epoch, Position

COPIED_DOMAINS = (*STREAM_DOMAINS, CLUSTER)
"""Domain 0 comes last: without it no process uses the others."""
ATTEMPTS = 5
PAUSE_SECONDS = 0.5
LOOK_SECONDS = 0.25

Progress = Callable[[Domain, int, int], None]
"""Called with a domain, the number of positions folded so far, and the number in all."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CopiedDomain:
    """One copied domain, with its positions in both ledgers."""

    domain: Domain
    source_position: Position
    target_position: Position
    image_bytes: int
    fingerprint: int
    """CRC-32 of the whole state without its position; the same on both sides."""


class LedgerCopy:
    """One copy from a ledger to an empty one."""

    def __init__(self, source: Ledger, target: Ledger, store: ObjectStore, clock: Clock, chance: Chance) -> None:
        self._source = source
        self._target = target
        self._store = store
        self._clock = clock
        self._chance = chance

    async def run(
        self, *, force: bool = False, report: Progress = lambda domain, done, total: None
    ) -> list[CopiedDomain]:
        """Copy all domains, and compare the states of both ledgers. No process may write to either in the meantime."""
        for domain in COPIED_DOMAINS:
            if await self._target.pointer(domain) or await _has_records(self._target, domain, Position(0)):
                raise ConfigError(f"the target already has records of domain {domain}; copy into an empty ledger")
        if not force:
            await check_nobody_lives(self._source, self._clock)
        states = [await self._fold(domain, report) for domain in COPIED_DOMAINS]
        ends = {state.domain: state.position for state in states}
        await self._check_unmoved(ends, "nothing was copied")
        copied = [await self._write(state) for state in states if state.position]
        await self._check_unmoved(ends, "the target lacks what was appended; remove it and copy again")
        return copied

    # --- the source ----------------------------------------------------------------------------------------

    async def _fold(self, domain: Domain, report: Progress) -> State:
        state = new_state(domain)
        while True:
            await load_state(self._source, self._store, state)
            try:
                start, last = state.position, await self._source.last(domain)
                while entries := await self._source.read(domain, state.position, READ_CHUNK):
                    check_dense(self._source, state, entries)
                    for entry in entries:
                        state.apply(entry.position, record_of(domain, entry))
                    report(domain, state.position - start, max(last, state.position) - start)
                    await asyncio.sleep(0)
                return state
            except Truncated:
                continue

    async def _check_unmoved(self, ends: Mapping[Domain, Position], otherwise: str) -> None:
        for domain, end in ends.items():
            if await _has_records(self._source, domain, end):
                raise ConfigError(f"the source has new records in domain {domain}; {otherwise}")

    # --- the target ----------------------------------------------------------------------------------------

    async def _write(self, state: State) -> CopiedDomain:
        before, fingerprint = state.position, fingerprint_of(state)
        older = await self._checkpoint(state, None)
        newest = await self._checkpoint(state, older)
        if await self._target.pointer(state.domain) != Pointer(*newest, older, state.clock_ms):
            raise Damaged(f"domain {state.domain}: another process moved the target's checkpoint")
        await self._persist(lambda: self._target.truncate(state.domain, older[0]))
        found = new_state(state.domain)
        await load_state(self._target, self._store, found)
        await replay(self._target, found)
        if found.position < state.position or fingerprint_of(found) != fingerprint:
            raise Damaged(f"domain {state.domain}: the target does not have the state of the source")
        return CopiedDomain(state.domain, before, state.position, len(state.image()), fingerprint)

    async def _checkpoint(self, state: State, older: tuple[Position, str] | None) -> tuple[Position, str]:
        """Give the state a position of the target, store it and set the pointer to it.

        The name is unique to this copy, so that no other ledger with the same store takes the object for its own and
        deletes it.
        """
        state.position = await self._persist(lambda: self._target.append(state.domain, NOTHING))
        path = path_of(state.domain, state.position, state.digest)
        path = f"{path.removesuffix('.ckpt')}-{self._chance.uuid().hex[:12]}.ckpt"
        data = encode_checkpoint(state)
        await self._persist(lambda: self._store.put(path, [data]))
        if await self._persist(lambda: self._store.get(path)) != data:
            raise Damaged(f"{path} does not read back as it was written")
        expected = older[0] if older else Position(0)
        pointer = Pointer(state.position, path, older, state.clock_ms)
        await self._persist(lambda: self._target.set_pointer(state.domain, expected, pointer))
        return state.position, path

    async def _persist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Retry a step until it succeeds. Steps may be repeated: a record without commands has no effect, and a pointer
        only rises."""
        for attempt in range(ATTEMPTS):
            try:
                return await call()
            except Retriable:
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(PAUSE_SECONDS * (0.5 + self._chance.fraction()))
        raise AssertionError("unreachable")


async def check_nobody_lives(ledger: Ledger, clock: Clock) -> None:
    """Raise if a process uses a ledger.

    The beat of a live process changes several times in a session. That of a killed process stays as it was.
    """
    first = {beat.process: beat.count for beat in await ledger.beats()}
    start = clock.monotonic()
    while first and clock.monotonic() - start < SESSION_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        now = await ledger.beats()
        living = sorted(beat.process for beat in now if first.get(beat.process) != beat.count)
        if living:
            raise ConfigError(
                f"{len(living)} processes use the ledger ({living[0]}); stop all brokers, compactors and gateways first"
            )


NOTHING = encode_record(Epoch(0), 0, 0, 0, [])
"""A record without commands. It changes nothing but the position."""


async def _has_records(ledger: Ledger, domain: Domain, after: Position) -> bool:
    """Whether there are records after a position. `last` does not show it: in some stores reads take positions, too."""
    await ledger.last(domain)
    try:
        return bool(await ledger.read(domain, after, 1))
    except Truncated:
        return True


def fingerprint_of(state: State) -> int:
    """CRC-32 of a state's image without its position."""
    position, state.position = state.position, Position(0)
    try:
        return zlib.crc32(state.image())
    finally:
        state.position = position
