"""200 clients append, read and follow over HTTP for a minute, beside 500 that read events slowly.

Every answer is 200, 409 or 429, the gateway's memory does not grow, and a Kafka producer is served as before.

python -m tests.soak.crowd --seconds 60
"""

from __future__ import annotations

import argparse
import functools
import http.client
import json
import random
import selectors
import socket
import statistics
import threading
import time
from collections import Counter

import psutil
from confluent_kafka import Producer

from tests.soak.common import Verdict, progress, workplace
from tests.support.running import Running

PROMISES = ("H1",)

TOPIC, BESIDE, PARTITIONS = "crowd", "beside", 6
CLIENTS, SLOW = 200, 500
ALLOWED = (200, 409, 429)
THINK_SECONDS = 0.2
"""What a client waits between two requests on average, so that all of them are a crowd and not a flood."""
SLOW_BYTES = 4_096
"""What a slow reader reads in a second."""
EVERY_SECONDS = 0.05
"""A record of the Kafka producer."""
GROWTH = 1.3
"""How much larger than after a third of the time the memory of the gateway may be in the end."""
DELAYED = 20.0
"""How many times its p99 without a crowd a producer may wait with it, on a machine that both share."""
LEAST_MS = 50.0
"""A p99 that is lower counts as this much."""
TIMEOUT_SECONDS = 60.0


class Member(threading.Thread):
    """One client: appends, conditional appends, reads in all forms, and streams that it leaves after some events."""

    def __init__(self, address: str, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address, self._stopping = address, stop
        self._chance = random.Random(number)
        self._connection: http.client.HTTPConnection | None = None
        self.answers: Counter[int] = Counter()
        self.strange: list[str] = []

    def run(self) -> None:
        acts = (self._append, self._append, self._expect, self._read, self._follow)
        while not self._stopping.is_set():
            try:
                self._chance.choice(acts)()
            except (OSError, http.client.HTTPException) as error:
                self.strange.append(f"no answer: {error!r}")
                self._close()
            self._stopping.wait(self._chance.uniform(0, 2 * THINK_SECONDS))
        self._close()

    def _append(self) -> None:
        count = self._chance.choice((1, 1, 10, 100))
        self._post({"records": [{"key": str(n), "value": "v" * 200} for n in range(count)]})

    def _expect(self) -> None:
        partition = self._chance.randrange(PARTITIONS)
        self._post({"records": [{"partition": partition, "value": "e"}], "expected_offset": self._chance.randrange(99)})

    def _post(self, body: dict[str, object]) -> None:
        headers = {"Content-Type": "application/json"}
        self._told(self._ask("POST", f"/v1/topics/{TOPIC}/records", json.dumps(body).encode(), headers))

    def _read(self) -> None:
        accept = self._chance.choice(
            ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream")
        )
        path = f"/v1/topics/{TOPIC}/partitions/{self._chance.randrange(PARTITIONS)}/records?limit=200"
        self._told(self._ask("GET", path, None, {"Accept": accept}))

    def _follow(self) -> None:
        """Read a stream for a moment, and leave it without a word."""
        answer = self._ask("GET", f"/v1/topics/{TOPIC}/records?offset=latest", None, {"Accept": "text/event-stream"})
        if answer.status != 200:
            self._told(answer)
            return
        self.answers[200] += 1
        for _ in range(self._chance.randrange(20)):
            if not answer.readline() or self._stopping.is_set():
                break
        self._close()

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        self._connection.request(method, path, body, headers)
        return self._connection.getresponse()

    def _told(self, answer: http.client.HTTPResponse) -> None:
        body = answer.read()
        self.answers[answer.status] += 1
        if answer.status not in ALLOWED:
            self.strange.append(f"{answer.status}: {body[:300]!r}")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SlowReaders(threading.Thread):
    """Many connections that follow a topic from its beginning and read a little now and then."""

    def __init__(self, address: str, count: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address, self._count, self._stopping = address, count, stop
        self.answers: Counter[int] = Counter()
        self.opened = 0
        self.closed = 0
        self.received = 0

    def run(self) -> None:
        host, _, port = self._address.partition(":")
        request = (
            f"GET /v1/topics/{TOPIC}/records HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        with selectors.DefaultSelector() as waiting:
            for _ in range(self._count):
                one = socket.socket()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BYTES)  # before it connects: a small window
                one.settimeout(TIMEOUT_SECONDS)
                one.connect((host, int(port)))
                one.sendall(request)
                waiting.register(one, selectors.EVENT_READ, True)
                self.opened += 1
            while not self._stopping.wait(1.0) and waiting.get_map():
                for key, _ in waiting.select(0):
                    self._read(waiting, key)
            for key in list(waiting.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def _read(self, waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        one = key.fileobj
        assert isinstance(one, socket.socket)
        try:
            piece = one.recv(SLOW_BYTES)
        except OSError:
            piece = b""
        self.received += len(piece)
        if not piece:
            self.closed += 1
            waiting.unregister(one)
            one.close()
        elif key.data:
            self.answers[int(piece.split(b" ", 2)[1])] += 1
            waiting.modify(one, selectors.EVENT_READ, False)


class Pacer(threading.Thread):
    """A Kafka producer with a record now and then, and how long each was under way."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._stopping = threading.Event()
        self.waited: list[float] = []
        self.failed = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._producer.produce(BESIDE, b"x" * 100, on_delivery=functools.partial(self._done, began))
            while time.monotonic() < began + EVERY_SECONDS:
                self._producer.poll(EVERY_SECONDS / 5)
        self._producer.flush(TIMEOUT_SECONDS)

    def _done(self, began: float, error: object, _: object) -> None:
        if error is not None:
            self.failed += 1
        self.waited.append(1_000 * (time.monotonic() - began))

    def taken(self) -> list[float]:
        """The times since the last call, in milliseconds."""
        found, self.waited = self.waited, []
        return found

    def finish(self) -> None:
        self._stopping.set()
        self.join(2 * TIMEOUT_SECONDS)
        del self._producer  # it would complain when the server ends


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--slow", type=int, default=SLOW)
    options = parser.parse_args()
    verdict = Verdict(f"{options.clients} clients and {options.slow} slow readers over HTTP")
    with workplace("crowd") as directory, Running(directory, gateway=True) as server, progress() as bars:
        for topic in (TOPIC, BESIDE):
            server.create(topic, PARTITIONS)
        pid = server.gateway_process().pid
        gateway = psutil.Process(pid)
        pacer = Pacer(server.bootstrap)
        pacer.start()
        time.sleep(3)
        pacer.taken()  # the first records wait for connections
        time.sleep(max(10.0, options.seconds / 4))
        before = p99(pacer.taken())
        stop = threading.Event()
        members = [Member(server.gateway, number, stop) for number in range(options.clients)]
        slow = SlowReaders(server.gateway, options.slow, stop)
        for thread in (slow, *members):
            thread.start()
        bar, memory, began = bars.add_task("seconds", total=int(options.seconds), now=""), [], time.monotonic()
        while (passed := time.monotonic() - began) < options.seconds:
            time.sleep(1)
            memory.append(gateway.memory_info().rss / 1e6)
            answers = sum((member.answers for member in members), Counter())
            bars.update(bar, completed=int(passed), now=f"{dict(answers)}, {memory[-1]:.0f} MB")
        during = p99(pacer.taken())
        stop.set()
        for thread in (slow, *members):
            thread.join(2 * TIMEOUT_SECONDS)
        pacer.finish()
        strange = [line for member in members for line in member.strange]
        answers = sum((member.answers for member in members), Counter())
        for status in sorted(answers):
            verdict.fact(f"answers {status}", answers[status])
        for line, count in Counter(strange).most_common(5):
            verdict.fact(line[:150], count)
        verdict.rule("answers other than 200, 409 and 429", len(strange), 0)
        verdict.floor("answers 200", answers[200], options.clients)
        verdict.floor("answers 409", answers[409], 1)
        verdict.floor("slow readers with a stream", slow.answers[200], options.slow)
        verdict.fact("slow readers that were closed", slow.closed)
        verdict.fact("bytes that slow readers took", slow.received)
        third = max(memory[: max(len(memory) // 3, 1)])
        verdict.fact("memory of the gateway after a third, MB", third)
        verdict.rule("memory of the gateway in the end, MB", max(memory[-5:]), GROWTH * third)
        verdict.fact("p99 of a Kafka producer before, ms", before)
        verdict.rule("p99 of a Kafka producer during it, ms", during, DELAYED * max(before, LEAST_MS))
        verdict.rule("records of that producer that failed", pacer.failed, 0)
        verdict.rule("gateways that died", int(server.gateway_process().pid != pid), 0)
    verdict.leave()


if __name__ == "__main__":
    main()
