"""A story is a sequence of requests, written as a generator that yields steps and is sent what came back.

    @story
    def a_member_leaves(told: Told) -> Steps:
        joined = yield call("join_group", group_id=told.name("g"), ...)
        yield call("leave_group", group_id=told.name("g"), members=[{"member_id": joined.member_id}])

A story is told to both servers, each with a generator of its own, and what they said is compared afterwards. Names are
unique to a story and a run. Requests that wait for others (a join) are begun on a connection of their own and finished
later.

Apache Kafka ends a transaction in steps and asks clients to come back meanwhile. The teller does so, as clients do, and
the story does not see it. Headwater has no such answers, and is not asked again.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from harness.patience import Patience
from tests.differential.peer import Peer

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 12.0
LATER = frozenset({"concurrent_transactions", "coordinator_load_in_progress", "coordinator_not_available"})
"""What Apache Kafka says while the end of a transaction is under way, or its coordinator starts."""
LATER_BY_API: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn", "txn_offset_commit", "end_txn",
            "describe_transactions", "list_transactions",
        ),
        LATER,
    ),
    "produce": LATER | {"not_enough_replicas"},
}  # fmt: skip
"""To which requests. Versions of Produce that clients of the first generation use have another code for it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose answer is recorded. Without a version it is the highest that Apache Kafka has."""

    api: str
    fields: Mapping[str, Any]
    version: int | None = None
    on: str = "main"
    """The connection, by a name of the story's choice."""
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Begin:
    """Send a request and go on; the story is sent a number for `Finish`."""

    call: Call


@dataclass(frozen=True, slots=True)
class Finish:
    """Wait for the answer to a request that was begun."""

    number: int


@dataclass(frozen=True, slots=True)
class Together:
    """Requests in one write on one connection. The story is sent a list of their answers, and all are recorded."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Until:
    """Repeat a request until its answer is as it should be; only that one is recorded."""

    call: Call
    holds: Callable[[Any], bool]
    recorded: bool = True


@dataclass(frozen=True, slots=True)
class Note:
    """A part of an answer is recorded; the rest is not for this story to compare."""

    title: str
    part: Any


Step: TypeAlias = Call | Begin | Finish | Together | Until | Note
Steps: TypeAlias = Generator[Step, Any, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One answer, with what was asked."""

    asked: str
    answer: Any


@dataclass(slots=True)
class Transcript:
    """All that one server said, how the story's own names began, and why it ended early, if it did."""

    prefix: str
    said: list[Said] = field(default_factory=list)
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a story knows: names of its own, chance of its own that is the same for both servers, and versions."""

    prefix: str
    chance: random.Random
    versions: Mapping[str, range]

    def name(self, what: str = "t") -> str:
        return f"{self.prefix}-{what}"


Story: TypeAlias = Callable[[Told], Steps]
STORIES: dict[str, Story] = {}


def story(function: Story) -> Story:
    """Register a story under its own name."""
    return add(function.__name__, function)


def add(name: str, function: Story) -> Story:
    """Register a story, one of several that a function makes."""
    assert name not in STORIES, name
    STORIES[name] = function
    return function


def call(api: str, version: int | None = None, on: str = "main", *, answered: bool = True, **more: Any) -> Call:
    return Call(api, more, version, on, answered)


class Teller:
    """Tells one story to one server."""

    def __init__(self, address: str, told: Told, connections: AsyncExitStack, *, comes_back: bool) -> None:
        self._address = address
        self._comes_back = comes_back
        self._told = told
        self._connections = connections
        self._peers: dict[str, Peer] = {}
        self._begun: list[tuple[str, asyncio.Task[Any]]] = []
        self._transcript = Transcript(told.prefix)

    async def tell(self, written: Story) -> Transcript:
        steps = written(self._told)
        back: Any = None
        try:
            while True:
                back = await self._do(steps.send(back))
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - a story that does not understand an answer ends there, and says so
            self._transcript.broken = f"{type(error).__name__}: {error}"
        finally:
            for _, task in self._begun:
                task.cancel()
            await asyncio.gather(*(task for _, task in self._begun), return_exceptions=True)
        return self._transcript

    async def _do(self, step: Step) -> Any:
        match step:
            case Call():
                return self._record(_title(step), await self._ask_now_or_later(step))
            case Begin(asked):
                self._begun.append((_title(asked), asyncio.create_task(self._ask(asked))))
                return len(self._begun) - 1
            case Finish(number):
                title, task = self._begun[number]
                return self._record(title, await task)
            case Together(calls):
                answers = await (await self._peer(calls[0].on)).ask_together(list(map(self._plain, calls)))
                return [self._record(_title(asked), answer) for asked, answer in zip(calls, answers, strict=True)]
            case Until(asked, holds, recorded):
                answer = await self._until(asked, holds)
                return self._record(_title(asked), answer) if recorded else answer
            case Note(title, part):
                return self._record(title, part)

    async def _ask_now_or_later(self, asked: Call) -> Any:
        """An answer that does not ask to come back. The last one counts if the server asks for too long."""
        later = LATER_BY_API.get(asked.api, frozenset()) if self._comes_back else frozenset()
        return await (self._until(asked, lambda answer: not later & codes(answer)) if later else self._ask(asked))

    async def _until(self, asked: Call, holds: Callable[[Any], bool]) -> Any:
        patience = Patience(PATIENCE_SECONDS)
        while True:
            answer = await self._ask(asked)
            if holds(answer) or patience.ended:
                return answer
            await asyncio.sleep(POLL_SECONDS)  # polls for a state; nothing counts on its length

    def _record(self, title: str, answer: Any) -> Any:
        self._transcript.said.append(Said(title, answer))
        return answer

    async def _ask(self, asked: Call) -> Any:
        return await (await self._peer(asked.on)).ask(*self._plain(asked), answered=asked.answered)

    async def _peer(self, name: str) -> Peer:
        if name not in self._peers:
            self._peers[name] = await self._connections.enter_async_context(Peer(self._address))
        return self._peers[name]

    def _plain(self, asked: Call) -> tuple[str, int, Mapping[str, Any]]:
        """A request as a connection takes it."""
        version = self._told.versions[asked.api][-1] if asked.version is None else asked.version
        return asked.api, version, asked.fields


def codes(answer: Any) -> set[str]:
    """The names of all error codes in an answer."""
    if isinstance(answer, ErrorCode):
        return {answer.name}
    if isinstance(answer, tuple):
        return {code for item in answer for code in codes(item)}
    return {code for f in fields(answer) for code in codes(getattr(answer, f.name))} if is_dataclass(answer) else set()


def _title(asked: Call) -> str:
    version = "" if asked.version is None else f" v{asked.version}"
    return f"{asked.api}{version} {dict(asked.fields)}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What both servers said to one story."""

    kafka: Transcript
    ours: Transcript


async def tell(name: str, written: Story, addresses: tuple[str, str], versions: Mapping[str, range]) -> Outcome:
    """One story, told to Apache Kafka and to us at the same time."""

    async def one(address: str, comes_back: bool) -> Transcript:
        told = Told(f"d{uuid.uuid4().hex[:8]}", random.Random(name), versions)
        async with AsyncExitStack() as connections:
            return await Teller(address, told, connections, comes_back=comes_back).tell(written)

    kafka, ours = await asyncio.gather(one(addresses[0], True), one(addresses[1], addresses[0] == addresses[1]))
    return Outcome(kafka, ours)
