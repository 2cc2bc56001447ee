"""Moving a cluster's metadata from one ledger to another, whatever store each of them lies in.

Nothing in a state depends on where its records lay, except for the position it has reached: positions are the store's
own (etcd's are revisions, SQLite's are consecutive). So a copy folds each domain to its end, gives the state a position
of the target's, and makes it a checkpoint there. Two records that say nothing obtain two such positions, and two
checkpoints of the same state stand behind the pointer, as everywhere else. Objects stay where they are.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headwater.app.node import DOMAINS, new_state
from headwater.clock import Chance, Clock
from headwater.errors import ConfigError, CorruptObject, Retriable, Truncated
from headwater.metadata.base import State
from headwater.metadata.checkpoint import READ_CHUNK, check_dense, encode_checkpoint, load_state, path_of, replay
from headwater.metadata.commands import decode, encode_record
from headwater.metadata.ledger import Ledger, Pointer
from headwater.metadata.membership import SESSION_SECONDS
from headwater.objects import ObjectStore
from headwater.types import CLUSTER, Domain, Epoch, Position

COPIED_DOMAINS = (*DOMAINS, CLUSTER)
"""The cluster's own comes last: without it nobody finds the others."""
ATTEMPTS = 5
PAUSE_SECONDS = 0.5
LOOK_SECONDS = 0.25

Told = Callable[[Domain, int, int], None]
"""Is told the domain, how far its records are folded, and how many positions there are to go over."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CopiedDomain:
    """One domain, before and after."""

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

    async def run(self, *, force: bool = False, told: Told = lambda domain, done, total: None) -> list[CopiedDomain]:
        """Copy all domains and compare what both ledgers fold to. Nobody may write to either meanwhile."""
        for domain in COPIED_DOMAINS:
            if await self._target.pointer(domain) or await _has_records(self._target, domain, Position(0)):
                raise ConfigError(f"the target has records of domain {domain} already; copy into an empty ledger")
        if not force:
            await self._check_nobody_lives()
        states = [await self._fold(domain, told) for domain in COPIED_DOMAINS]
        ends = {state.domain: state.position for state in states}
        await self._check_unmoved(ends, "nothing was copied")
        copied = [await self._write(state) for state in states if state.position]
        await self._check_unmoved(ends, "the target lacks what was appended; remove it and copy again")
        return copied

    # --- the source ----------------------------------------------------------------------------------------

    async def _check_nobody_lives(self) -> None:
        """A process shows signs of life more than once in a session; one that was killed leaves its last one behind."""
        first = {beat.process: beat.count for beat in await self._source.beats()}
        start = self._clock.monotonic()
        while first and self._clock.monotonic() - start < SESSION_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            now = await self._source.beats()
            living = sorted(beat.process for beat in now if first.get(beat.process) != beat.count)
            if living:
                raise ConfigError(
                    f"{len(living)} processes use the source ({living[0]}); stop all brokers and compactors first"
                )

    async def _fold(self, domain: Domain, told: Told) -> State:
        state = new_state(domain)
        while True:
            await load_state(self._source, self._store, state)
            try:
                start, last = state.position, await self._source.last(domain)
                while entries := await self._source.read(domain, state.position, READ_CHUNK):
                    check_dense(self._source, state, entries)
                    for entry in entries:
                        state.apply(entry.position, decode(entry.data))
                    told(domain, state.position - start, max(last, state.position) - start)
                    await asyncio.sleep(0)
                return state
            except Truncated:
                continue

    async def _check_unmoved(self, ends: Mapping[Domain, Position], otherwise: str) -> None:
        for domain, end in ends.items():
            if await _has_records(self._source, domain, end):
                raise ConfigError(f"somebody appended to the source meanwhile (domain {domain}); {otherwise}")

    # --- the target ----------------------------------------------------------------------------------------

    async def _write(self, state: State) -> CopiedDomain:
        before, fingerprint = state.position, fingerprint_of(state)
        older = await self._checkpoint(state, None)
        newest = await self._checkpoint(state, older)
        if await self._target.pointer(state.domain) != Pointer(*newest, older):
            raise CorruptObject(f"domain {state.domain}: somebody else moved the target's checkpoint meanwhile")
        await self._persist(lambda: self._target.truncate(state.domain, older[0]))
        found = new_state(state.domain)
        await load_state(self._target, self._store, found)
        await replay(self._target, found)
        if found.position < state.position or fingerprint_of(found) != fingerprint:
            raise CorruptObject(f"domain {state.domain}: the target does not read back as the source")
        return CopiedDomain(state.domain, before, state.position, len(state.image()), fingerprint)

    async def _checkpoint(self, state: State, older: tuple[Position, str] | None) -> tuple[Position, str]:
        """Give the state a position of the target's, store it and point to it.

        The name is this copy's own: no other ledger that shares the store takes the object for its own and deletes it.
        """
        state.position = await self._persist(lambda: self._target.append(state.domain, NOTHING))
        path = path_of(state.domain, state.position, state.digest)
        path = f"{path.removesuffix('.ckpt')}-{self._chance.uuid().hex[:12]}.ckpt"
        data = encode_checkpoint(state)
        await self._persist(lambda: self._store.put(path, [data]))
        if await self._persist(lambda: self._store.get(path)) != data:
            raise CorruptObject(f"{path} does not read back as it was written")
        expected = older[0] if older else Position(0)
        pointer = Pointer(state.position, path, older)
        await self._persist(lambda: self._target.set_pointer(state.domain, expected, pointer))
        return state.position, path

    async def _persist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Each step may be repeated: a record that says nothing may stand twice, and a pointer only rises."""
        for attempt in range(ATTEMPTS):
            try:
                return await call()
            except Retriable:
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(PAUSE_SECONDS * (0.5 + self._chance.fraction()))
        raise AssertionError("unreachable")


NOTHING = encode_record(Epoch(0), 0, 0, [])
"""A record without commands. It changes nothing but the position."""


async def _has_records(ledger: Ledger, domain: Domain, after: Position) -> bool:
    """Whether something was appended. `last` alone does not tell: some stores count a look at the end as a position."""
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
