"""Ten hostile users with every attack of `tests.soak.hostile`, while an honest one writes, reads, asks and settles.

The honest user's records are acknowledged in every second, memory and descriptors stay bounded, no process is fenced
and none ends, and nothing is done for which a hostile user has no right. What the attacks cost the honest user is told.
A second counts for the share that the machine gave to the broker of it (`Silence`).

python -m tests.soak.neighbours --seconds 600
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from confluent_kafka import Consumer, Producer

from harness import process
from harness.pages import metric_of
from harness.patience import SPAN_SECONDS, Reading, eventually
from harness.ports import free_port
from harness.process import environment
from harness.tools import ROOT
from tests.soak.common import Verdict, progress, workplace
from tests.soak.hostile import HONEST, NAMES, PARTITIONS, password_of
from tests.support.running import Running

PROMISES = ("S4",)

ADMIN = "admin"
DESCRIPTORS = 2_048
LIMITED = ("/bin/sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh")
SETTINGS = """
process_session_ms = 15000
[limits]
caller_groups_bytes = 8388608
groups_bytes = 67108864
caller_keys_bytes = 8388608
keys_bytes = 67108864
[lake]
freshness_ms = 5000
[gateway]
flight = "127.0.0.1:{flight}"
[security]
acls = true
super_users = "User:ANONYMOUS;User:admin"
[security.http]
authentication = "basic"
[security.listeners.INSIDE]
protocol = "PLAINTEXT"
[security.listeners.OUTSIDE]
protocol = "SASL_PLAINTEXT"
mechanisms = "PLAIN"
"""
"""Totals that ten users reach soon, and sessions that outlast a machine that others use.

The inner listener is for the soak itself."""
EVERY_S = 0.02
"""A record of the honest producer."""
MEMORY_MB = 1_500.0
"""Of a broker, a gateway and a compactor, each without its children: what shares allow, and what a process has idle."""
SILENT_S = 1.0
WITHIN = 120.0
SERVERS = ("broker", "gateway", "compactor")


class Server(Running):
    """A whole Headwater with users and rules, and a second Kafka listener for them."""

    def __init__(self, directory: Path) -> None:
        self.flight, self.outside = free_port(), free_port()
        inside = free_port()
        super().__init__(
            directory, lake=True, settings=SETTINGS.format(flight=self.flight), first_port=inside,
            kafka=f"INSIDE=127.0.0.1:{inside},OUTSIDE=127.0.0.1:{self.outside}",
        )  # fmt: skip

    def call(
        self, method: str, path: str, body: object = None, user: str = ADMIN, address: str = ""
    ) -> tuple[int, bytes]:
        """The status and the body of an answer of the gateway, or of another address."""
        login = "Basic " + b64encode(f"{user}:{password_of(user)}".encode()).decode()
        link = http.client.HTTPConnection(address or self.gateway, timeout=WITHIN)
        try:
            headers = {"Authorization": login, "Content-Type": "application/json"}
            link.request(method, path, None if body is None else json.dumps(body), headers)
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()

    def page(self, path: str, within: float = 30) -> tuple[int, str]:
        status, body = self.call("GET", path, address=self.http)
        return status, body.decode()

    def client_config(self, user: str) -> dict[str, Any]:
        """The configuration of a Kafka client."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.outside}",
            "log_level": 0,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def servers(self) -> dict[str, psutil.Process]:
        found = (self.broker(1), self.gateway_process(), self.compactor_process())
        return dict(zip(SERVERS, found, strict=True))

    def admit(self, users: Sequence[str]) -> None:
        """Users with the rights to all whose names begin with theirs, and their topics."""
        for user in users:
            _right(self.call("PUT", f"/v1/users/{user}", {"password": password_of(user)}))
            rule = {"principal": f"User:{user}", "operation": "ALL", "pattern": "PREFIXED", "name": user}
            _right(
                self.call("POST", "/v1/rules", {"rules": [{**rule, "resource": kind} for kind in ("TOPIC", "GROUP")]})
            )
            if user == HONEST:
                self.create(HONEST, 1)
                continue
            self.create(f"{user}-own", 1)
            self.create(f"{user}-wide", PARTITIONS)
            self.create(f"{user}-typed", 1, **{"headwater.value.schema": "auto"})


def _right(answer: tuple[int, bytes]) -> None:
    assert answer[0] < 300, answer


class Silence:
    """How long no record was acknowledged: as the clock has it, and as the machine let the broker work.

    Like `Patience`, a second counts for the share in which processes that had work got a processor for it. The time in
    which the broker's event loop waited for a processor that other programs had does not count either.
    """

    def __init__(self, broker: psutil.Process) -> None:
        self._delays = Path(f"/proc/{broker.pid}/task/{broker.pid}/schedstat")
        self._seen, self._waited = Reading.take(), self._wait()
        self.longest = self.counted = 0.0
        self.seconds = 0
        """Whole seconds without an acknowledgement, as they count."""

    def _wait(self) -> float:
        return int(self._delays.read_text().split()[1]) / 1e9 if self._delays.exists() else 0.0

    def heard(self) -> None:
        """A record was acknowledged."""
        seen, waited = Reading.take(), self._wait()
        passed = seen.now - self._seen.now
        if passed >= SPAN_SECONDS:
            counted = (passed - min(passed, waited - self._waited)) * seen.speed_since(self._seen)
            self.longest, self.counted = max(self.longest, passed), max(self.counted, counted)
            self.seconds += int(counted / SILENT_S)
        self._seen, self._waited = seen, waited


class Writer(threading.Thread):
    """The honest producer: a record now and then, each with its number."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({**server.client_config(HONEST), "linger.ms": 0, "enable.idempotence": True})
        self._stopping = threading.Event()
        self._broker = server.broker(1)
        self.silence = Silence(self._broker)
        self.sent = self.acknowledged = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._producer.produce(HONEST, b"%d" % self.sent, on_delivery=self._done)
            self.sent += 1
            while (left := began + EVERY_S - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(WITHIN)

    def _done(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        self.acknowledged += 1
        self.silence.heard()

    def begin_anew(self) -> tuple[int, float]:
        """Count silence from now on. Returns what was acknowledged so far, and the CPU seconds of the broker."""
        self.silence = Silence(self._broker)
        times = self._broker.cpu_times()
        return self.acknowledged, times.user + times.system

    def finish(self) -> None:
        self._stopping.set()
        self.join(2 * WITHIN)
        del self._producer  # it would complain when the server ends


class Reader(threading.Thread):
    """The honest consumer. It checks that each record comes once and in order."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        own = {"group.id": HONEST, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**server.client_config(HONEST), **own})
        self._consumer.subscribe([HONEST])
        self.stopping = threading.Event()
        self.read = self.wrong = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self._consumer.consume(500, 0.5):
                if message.error() is None:
                    self.wrong += message.value() != b"%d" % self.read
                    self.read += 1
        self._consumer.close()


class Asker(threading.Thread):
    """The honest queries: one after another, each with at least what was acknowledged before it."""

    def __init__(self, server: Server, writer: Writer) -> None:
        super().__init__(daemon=True)
        self._server, self._writer = server, writer
        self.stopping = threading.Event()
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.longest = 0.0

    def run(self) -> None:
        answered = time.monotonic()
        while not self.stopping.is_set():
            before = self._writer.acknowledged
            try:
                status, body = self._server.call("POST", "/v1/sql", {"sql": f"SELECT count(*) FROM {HONEST}"}, HONEST)
                told = str(status)
            except (OSError, http.client.HTTPException) as error:
                status, body, told = 0, b"", type(error).__name__
            self.answers[told] += 1
            if status == 200:
                [[count]] = json.loads(body)["rows"]
                if not before <= int(count) <= self._writer.sent:
                    self.wrong.append(f"{count} rows, and {before} were acknowledged")
                answered, self.longest = time.monotonic(), max(self.longest, time.monotonic() - answered)
            elif status not in (0, 429, 503):
                self.wrong.append(f"{status}: {body[:200]!r}")
            self.stopping.wait(1)
        self.longest = max(self.longest, time.monotonic() - answered)


class Watch(threading.Thread):
    """What servers use, at most, and how old the oldest honest record is that is not settled."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._found = server.servers()
        self.stopping = threading.Event()
        self.memory, self.descriptors = dict.fromkeys(SERVERS, 0.0), dict.fromkeys(SERVERS, 0)
        self.lag = 0.0
        self.unseen = 0

    def run(self) -> None:
        while not self.stopping.wait(1):
            for name, one in self._found.items():
                with suppress(psutil.NoSuchProcess):
                    self.memory[name] = max(self.memory[name], one.memory_info().rss / 1e6)
                    self.descriptors[name] = max(self.descriptors[name], one.num_fds())
            try:
                status, page = self._server.page("/metrics")
            except (OSError, http.client.HTTPException):
                status, page = 0, ""
            self.unseen += status != 200
            own = "\n".join(line for line in page.splitlines() if f'topic="{HONEST}"' in line)
            self.lag = max(self.lag, metric_of(own, "headwater_settle_lag_seconds"))


@contextmanager
def attackers(server: Server, users: Sequence[str], only: Sequence[str]) -> Iterator[list[Path]]:
    """A process for each user; gives the files with what they were answered."""
    _, _, http_port = server.gateway.rpartition(":")
    ports = [str(port) for port in (server.outside, http_port, server.flight, server.http.rpartition(":")[2])]
    files = [server.directory / f"{user}.json" for user in users]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for user, file in zip(users, files, strict=True):
            command = [sys.executable, "-m", "tests.soak.hostile", user, *ports, str(file)]
            command += [word for name in only for word in ("--only", name)]
            log = (server.directory / f"{user}.log").open("wb")
            running.append(subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=log, stderr=log))
            log.close()
        eventually(lambda: all(file.exists() for file in files), "the attackers have begun", WITHIN)
        yield files
        dead = [user for user, one in zip(users, running, strict=True) if one.poll() is not None]
        assert not dead, f"attackers ended: {dead}"
    finally:
        for one in running:
            one.kill()
        for one in running:
            one.wait()


def told(verdict: Verdict, files: Sequence[Path]) -> None:
    """What hostile users were answered, and what they got without a right."""
    answers: Counter[str] = Counter()
    breaches: Counter[str] = Counter()
    ended = []
    for file in files:
        found = json.loads(file.read_text())
        answers.update(found["answers"])
        breaches.update(found["breaches"])
        ended += found["ended"]
    for name in sorted(answers):
        verdict.fact(f"attack {name}", answers[name])
    for name in sorted(breaches):
        verdict.rule(f"done without a right: {name}", breaches[name], 0)
    verdict.rule("attacks that gave up", len(ended), 0)


def soak(server: Server, options: argparse.Namespace, verdict: Verdict) -> None:
    users = [f"hostile-{number}" for number in range(options.users)]
    server.admit([HONEST, *users])
    epochs, pids = server.epochs(), {name: one.pid for name, one in server.servers().items()}
    writer = Writer(server)
    reader, asker, watch = Reader(server), Asker(server, writer), Watch(server)
    for thread in (writer, reader, asker, watch):
        thread.start()
    eventually(lambda: reader.read > 100, "the honest user's records are read", WITHIN)
    eventually(lambda: asker.answers["200"] > 1, f"queries are answered: {asker.answers}, {asker.wrong[:1]}", WITHIN)
    quiet = max(10.0, options.seconds / 10)
    before, cpu = writer.begin_anew()
    time.sleep(quiet)  # the length of the phase
    idle, idle_cpu = writer.begin_anew()
    per_record = (idle_cpu - cpu) / max(1, idle - before)
    with attackers(server, users, options.only) as files, progress() as bars:
        idle, idle_cpu = writer.begin_anew()
        asker.longest, asker.answers, watch.lag = 0.0, Counter(), 0.0
        bar, began = bars.add_task("seconds", total=int(options.seconds), now=""), time.monotonic()
        while (passed := time.monotonic() - began) < options.seconds:
            time.sleep(1)
            now = f"{writer.acknowledged - idle} records, {dict(asker.answers)}, lag {watch.lag:.0f} s"
            bars.update(bar, completed=int(passed), now=now)
        silence, lag, answers = writer.silence, watch.lag, asker.answers.copy()
        silence.heard()  # also if nothing has come since
        done, done_cpu = writer.begin_anew()
    pending = server.table("describe", HONEST, "--output", "json")["pending_records"]
    writer.finish()
    eventually(lambda: reader.read >= writer.acknowledged, "the consumer reads all records", WITHIN)
    server.table("settle", HONEST, "--timeout", f"{WITHIN:g}")
    for thread in (reader, asker, watch):
        thread.stopping.set()
    for thread in (reader, asker, watch):
        thread.join(2 * WITHIN)

    told(verdict, files)
    verdict.fact("honest records during the attacks", done - idle)
    verdict.fact("longest time without an acknowledgement, by the clock, s", silence.longest)
    verdict.fact("the same without the time that the machine took away, s", silence.counted)
    verdict.rule("seconds without an acknowledgement", silence.seconds, 0)
    verdict.rule("honest records that failed", len(writer.failures), 0)
    verdict.rule("honest records read twice, or not in order", reader.wrong, 0)
    verdict.rule("honest records not read", writer.acknowledged - reader.read, 0)
    during = (done_cpu - idle_cpu) / max(1, done - idle)
    verdict.fact("CPU of the broker per honest record, idle, ms", 1_000 * per_record)
    verdict.fact("the same during the attacks, ms (wish: at most 1.5 times)", 1_000 * during)
    for name in sorted(answers):
        verdict.fact(f"honest queries answered {name}", answers[name])
    verdict.fact("longest time without an answer to a query, s", asker.longest)
    verdict.floor("honest queries answered", answers["200"], max(1, int(options.seconds / 30)))
    verdict.rule("honest queries with another answer", len(asker.wrong), 0)
    for line in asker.wrong[:3]:
        verdict.fact("such an answer", line)
    verdict.fact("age of the oldest honest record that was not settled, at most, s", lag)
    verdict.rule("honest records that were not settled when the attacks ended", pending, writer.acknowledged / 2)
    for name in SERVERS:
        verdict.rule(f"memory of the {name}, MB", watch.memory[name], MEMORY_MB)
        verdict.rule(f"descriptors of the {name}", watch.descriptors[name], DESCRIPTORS - 1)
    verdict.fact("pages of metrics that did not come", watch.unseen)
    verdict.fact("times that no descriptor was left", server.metric("headwater_descriptors_spent_total"))
    verdict.rule("epochs that the broker lost", int(server.epochs() != epochs), 0)
    ended = [name for name, one in server.servers().items() if one.pid != pids[name]]
    verdict.rule("processes that ended", len(ended), 0)
    failed = [line for line in server.log_lines() if line.get("level") in ("error", "critical")]
    for text, count in Counter(map(_last_line, failed)).most_common(10):
        verdict.fact(f"in the log: {text}", count)


def _last_line(line: dict[str, Any]) -> str:
    """What an entry of the log says, and the end of its trace."""
    trace = str(line.get("error") or line.get("reason") or "").strip().splitlines()
    return f"{line.get('message')}: {trace[-1] if trace else ''}"[:200]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--users", type=int, default=10, help="hostile ones")
    parser.add_argument("--only", action="append", default=[], choices=NAMES, help="an attack; may be repeated")
    options = parser.parse_args()
    verdict = Verdict(f"{options.users} hostile users beside an honest one, {options.seconds:g} seconds")
    with ExitStack() as held:
        directory = held.enter_context(workplace("neighbours"))
        server = Server(directory)
        server.prepare()
        (directory / ADMIN).write_text(password_of(ADMIN))
        server.cli("user", "add", ADMIN, "--config", str(server.config), "--new-password-file", str(directory / ADMIN))
        held.enter_context(patch.object(process, "PROGRAM", (*LIMITED, *process.PROGRAM)))
        held.enter_context(server)
        soak(server, options, verdict)
    verdict.leave()


if __name__ == "__main__":
    main()
