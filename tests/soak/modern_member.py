"""A member of a KIP-848 group: librdkafka in a process of its own, so that it can crash.

The process and whoever started it talk in lines of JSON. Before the process commits, or asks for what was committed, it
says so and waits for a line back: so it is known how far offsets can be, and how far they must be.

python -m tests.soak.modern_member ADDRESSES GROUP TOPIC
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

BEAT_S = 2.0
LEAVE_S = 20.0
ASK_S = 10.0
_TRY_AGAIN = {
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._DESTROY,
}
"""What a member may get while brokers die and others come and go."""


class _Life:
    """The member in its own process."""

    def __init__(self, addresses: str, group: str, topic: str) -> None:
        self._topic = topic
        self._ends: dict[int, int] = {}
        self._new: list[int] = []
        self._over = threading.Event()
        self._heard = threading.Semaphore(0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": addresses,
                "group.id": group,
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)
        while not self._over.is_set():
            message = self._consumer.poll(BEAT_S)
            problem = message.error() if message is not None else None
            if problem is not None:
                self._judge(problem)
            try:
                self._take_over()
                self._commit()
            except KafkaException as error:
                self._judge(error.args[0])
        self._consumer.close()

    def _listen(self) -> None:
        for _ in sys.stdin:
            self._heard.release()
        self._over.set()
        self._heard.release()

    def _say(self, what: str, value: Any) -> None:
        print(json.dumps([what, value]), flush=True)

    def _announce(self, what: str, value: Any) -> bool:
        """Say something and wait until it was heard; False if nobody listens any more."""
        self._say(what, value)
        self._heard.acquire()
        return not self._over.is_set()

    def _judge(self, error: KafkaError) -> None:
        if error.code() not in _TRY_AGAIN:
            self._say("strange", error.name())

    def _assigned(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in parts])
        consumer.pause(parts)  # there is nothing to read, and asking for it would cost the machine
        self._new += [p.partition for p in parts]
        self._say("assigned", self._mine())

    def _gone(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        lost = {p.partition for p in parts}
        self._ends = {p: end for p, end in self._ends.items() if p not in lost}
        self._new = [p for p in self._new if p not in lost]
        self._say("assigned", self._mine())
        consumer.incremental_unassign(parts)

    def _mine(self) -> list[int]:
        return sorted({*self._ends, *self._new})

    def _take_over(self) -> None:
        """Ask where those before have come to. It stays to be asked if there is no answer."""
        if not self._new:
            return
        asked = list(self._new)
        if not self._announce("asking", asked):
            return
        found = self._consumer.committed([TopicPartition(self._topic, p) for p in asked], timeout=ASK_S)
        for part in found:
            if part.error is not None:
                raise KafkaException(part.error)
        ends = {part.partition: max(part.offset, 0) for part in found}
        self._say("told", list(ends.items()))
        self._ends |= ends
        self._new = [p for p in self._new if p not in ends]

    def _commit(self) -> None:
        if not self._ends:
            return
        ends = {p: end + 1 for p, end in self._ends.items()}
        if not self._announce("began", list(ends.items())):
            return
        self._ends = ends
        parts = [TopicPartition(self._topic, p, end) for p, end in ends.items()]
        done = self._consumer.commit(offsets=parts, asynchronous=False)
        for part in done:
            if part.error is not None:
                raise KafkaException(part.error)
        self._say("stands", list(ends.items()))


class ModernMember:
    """The member as whoever started it sees it; `run` is its life until it is cancelled, `crash` or `leave` its end."""

    def __init__(self, addresses: list[str], truth: Any, name: str) -> None:
        self._addresses = addresses
        self._truth = truth
        self._name = name
        self._process: asyncio.subprocess.Process | None = None
        self._floors: dict[int, int] = {}
        self.assigned: list[int] | None = None
        self.generation = 0
        """Members of these groups are not of one generation."""

    async def run(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.soak.modern_member", ",".join(self._addresses), self._truth.group,
            self._truth.topic, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None and self._process.stdin is not None
        while line := await self._process.stdout.readline():
            what, value = json.loads(line)
            self._note(what, value)
            if what in ("asking", "began"):
                self._process.stdin.write(b"\n")
        self._truth.strange.append(f"{self._name}: its process ended with {await self._process.wait()}")

    def _note(self, what: str, value: Any) -> None:
        truth = self._truth
        match what:
            case "assigned":
                self.assigned = value
            case "asking":
                self._floors = {p: truth.at_least.get(p, 0) for p in value}
            case "told":
                for partition, offset in value:
                    truth.look(partition, offset, self._floors[partition])
                truth.hand_overs += 1
            case "began":
                for partition, offset in value:
                    truth.began(partition, offset)
            case "stands":
                for partition, offset in value:
                    truth.stands(partition, offset)
                truth.commits += 1
            case _:
                truth.strange.append(f"{self._name}: {value}")

    async def crash(self) -> None:
        """End at once, without a word; call it once `run` is over."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def leave(self) -> None:
        """Say good-bye; call it once `run` is over."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._drained(), LEAVE_S)
        await self.crash()

    async def _drained(self) -> None:
        """Hear what it still says: a pipe that nobody reads would stop it. Nothing that it begins now is done."""
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            what, value = json.loads(line)
            if what == "stands":
                self._note(what, value)
        await self._process.wait()


if __name__ == "__main__":
    _Life(*sys.argv[1:]).run()
