"""What one hostile user does, each attack in a thread of its own: `hostile NAME KAFKA HTTP FLIGHT PAGES FILE`.

The user logs in as others do, and has the rights to its own topics, those whose names begin with its name. It has an
address of its own. FILE gets what was answered, by attack, and what should have been refused.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import itertools
import json
import os
import socket
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyarrow import flight

from headwater.gateway.callers import TOKENS
from headwater.gateway.flight.messages import pack
from headwater.wire.codecs import ZSTD
from tests.faults.raw import PRODUCE, WITHIN, Closed, Raw, fresh

HONEST = "honest"
"""The topic of the honest user, which others may neither read nor write."""
PARTITIONS = 250
"""Of the topic to which records with idempotency keys go: each key takes some bytes for each of them."""
MIB = 1 << 20
PAUSE_S = 0.2
"""The pace of each attack: the machine that is attacked also runs the attackers."""
BEHIND = 3
"""How much niceness attackers add: outside of a soak they have machines of their own."""
SLOW_FORMS, SLOW_BODIES, IDLE = 60, 60, 150
"""Connections of each user."""
HANDSHAKE, AUTHENTICATE, JOIN = 17, 36, 11
ENDLESS = "SELECT count(*) FROM range(100000) a, range(100000) b, range(100000) c WHERE a.range + b.range = c.range"


def password_of(name: str) -> str:
    """The password of a user of the soak."""
    return f"the password of {name}"


class LoggedIn(Raw):
    """A Kafka connection of a user, from an address of its own."""

    def __init__(self, port: int, name: str, address: str) -> None:
        super().__init__(port, name)
        self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", port), WITHIN, (address, 0))
        self.ask(HANDSHAKE, 1, mechanism="PLAIN")
        answer = self.ask(AUTHENTICATE, 1, auth_bytes=f"\0{name}\0{password_of(name)}".encode())
        if answer.error_code:
            raise Closed


class Hostile:
    """One user, and what its requests were answered."""

    def __init__(self, name: str, kafka: int, http_port: int, flight_port: int, pages: int) -> None:
        self.name = name
        self.kafka, self.http, self.flight, self.pages = kafka, http_port, flight_port, pages
        self.address = f"127.0.1.{1 + int(name.rpartition('-')[2])}"
        self.own, self.wide, self.typed = (f"{name}-{kind}" for kind in ("own", "wide", "typed"))
        self.answers: Counter[str] = Counter()
        self.breaches: Counter[str] = Counter()
        self.keys = itertools.count()

    def ask(
        self, method: str, path: str, body: object = None, *, password: str = "", **headers: str
    ) -> tuple[int, bytes]:
        """The status and the body of an answer over HTTP."""
        login = b64encode(f"{self.name}:{password or password_of(self.name)}".encode()).decode()
        known = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        known |= {name.replace("_", "-"): value for name, value in headers.items()}
        link = http.client.HTTPConnection("127.0.0.1", self.http, WITHIN, source_address=(self.address, 0))
        with contextlib.closing(link):
            link.request(method, path, body if body is None else json.dumps(body), known)
            answer = link.getresponse()
            return answer.status, answer.read()

    def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        status, _ = self.ask("POST", f"/subjects/{subject}/versions", {"schema": text, "schemaType": kind})
        return status

    def logged_in(self) -> LoggedIn:
        return LoggedIn(self.kafka, self.name, self.address)

    def many(self, port: int, count: int, first: bytes, then: bytes) -> None:
        """Connections that send something, and then a little at times; those that are closed are opened anew."""
        links: list[socket.socket] = []
        while True:
            for _ in range(min(10, count - len(links))):
                with contextlib.suppress(OSError):
                    link = socket.create_connection(("127.0.0.1", port), WITHIN, (self.address, 0))
                    links.append(link)
                    link.sendall(first)
                    link.setblocking(False)
            for link in list(links):
                try:
                    link.send(then)
                    if link.recv(4_096) == b"":
                        raise Closed
                except BlockingIOError:
                    continue
                except (OSError, Closed):
                    links.remove(link)
                    link.close()
            self.answers[f"connections to {port} held"] = len(links)
            time.sleep(1)  # the pace of the attack


# --- requests that take long to judge ------------------------------------------------------------------


def long_show(user: Hostile) -> int:
    return user.ask("POST", "/v1/sql", {"sql": "SHOW TABLES" + " " * 65_000 + "x"})[0]


def doubled(depth: int, **field: Any) -> Any:
    """A record of which each level has the one below it twice."""
    kind: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "null", **field}]}
    for level in range(1, depth):
        parts = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{level - 1}"}]
        if field:
            parts = [{**part, "default": {}} for part in parts]
        kind = {"type": "record", "name": f"R{level}", "fields": parts}
    return kind


def avro_defaults(user: Hostile) -> int:
    user.register(f"{user.own}-key", json.dumps(doubled(30, default=None)))
    wanted = {"records": [{"key": {}, "value": "x"}]}
    return user.ask("POST", f"/v1/topics/{user.own}/records?key_schema={user.own}-key", wanted)[0]


def nested_all_of(user: Hostile) -> int:
    schema: Any = {"properties": {"a": {}}}
    for _ in range(24):
        schema = {"unevaluatedProperties": False, "allOf": [schema]}
    text = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    user.register(f"{user.wide}-value", json.dumps(text), "JSON")
    wanted = {"records": [{"value": {"a": 1}}]}
    return user.ask("POST", f"/v1/topics/{user.wide}/records?value_schema={user.wide}-value", wanted)[0]


def protobuf_spaces(user: Hostile) -> int:
    return user.register(f"{user.own}-value", "syntax" + " " * 60_000 + "?", "PROTOBUF")


def large_json_schema(user: Hostile) -> int:
    names = {f"field_{n:05}": {"type": "string", "description": "x" * 20} for n in range(12_000)}
    return user.register(f"{user.own}-value", json.dumps({"type": "object", "properties": names}), "JSON")


def flight_filter(user: Hostile) -> int:
    call = flight.FlightCallOptions(timeout=WITHIN)
    with flight.FlightClient(f"grpc://127.0.0.1:{user.flight}") as client:
        token = client.authenticate_basic_token(user.name, password_of(user.name), call)
        call = flight.FlightCallOptions(timeout=WITHIN, headers=[token])
        wanted = pack("CommandGetTables", table_name_filter_pattern="%_" * 900 + "x")
        info = client.get_flight_info(flight.FlightDescriptor.for_command(wanted), call)
        return int(client.do_get(info.endpoints[0].ticket, call).read_all().num_rows)


def endless_sql(user: Hostile) -> int:
    return user.ask("POST", "/v1/sql", {"sql": ENDLESS})[0]


# --- what settling meets -----------------------------------------------------------------------------


def empty_payloads(user: Hostile) -> int:
    """Records without a byte behind the id of a schema whose values have a billion parts."""
    text = json.dumps(doubled(30))
    status, body = user.ask("POST", f"/subjects/{user.typed}-value/versions", {"schema": text})
    if status != 200:
        return status
    head = b"\0" + int(json.loads(body)["id"]).to_bytes(4, "big")
    return produced(user, user.typed, fresh([head] * 100))


def bombs(user: Hostile) -> int:
    """A batch that opens to 60 MB, which is taken and settled, and one that opens to 100 MB."""
    for size in (100, 60):
        code = produced(user, user.own, bomb(size))
    return code


@functools.cache
def bomb(size: int) -> bytes:
    return fresh([bytes(size * MIB - 1_000)], codec=ZSTD)


def produced(user: Hostile, topic: str, records: bytes) -> int:
    with user.logged_in() as link:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        answer = link.ask(PRODUCE, 9, acks=-1, timeout=10_000, transactional_id=None, topic_data=data)
        return int(answer.responses[0].partition_responses[0].error_code)


# --- shares ------------------------------------------------------------------------------------------


def idle_kafka(user: Hostile) -> None:
    user.many(user.kafka, IDLE, b"", b"")


def idle_http(user: Hostile) -> None:
    user.many(user.http, IDLE, b"", b"")


def idle_pages(user: Hostile) -> None:
    user.many(user.pages, IDLE, b"GET /metrics HTTP/1.1\r\n", b"")


def slow_forms(user: Hostile) -> None:
    head = f"POST {TOKENS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    user.many(user.http, SLOW_FORMS, f"{head}Content-Length: 60000\r\n\r\n".encode(), b"x")


def slow_bodies(user: Hostile) -> None:
    login = b64encode(f"{user.name}:{password_of(user.name)}".encode()).decode()
    head = f"POST /v1/topics/{user.own}/records HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n"
    rest = "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    user.many(user.http, SLOW_BODIES, (head + rest).encode(), b" ")


def large_joins(user: Hostile) -> int:
    fields = {"session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": "", "protocol_type": "consumer"}
    with user.logged_in() as link:
        for size in (900_000, 400_000):
            protocols = [{"name": "range", "metadata": os.urandom(size)}]
            group = f"{user.name}-{next(user.keys)}"
            joined = link.ask(JOIN, 3, group_id=group, protocols=protocols, **fields)
        return int(joined.error_code)


def wide_keys(user: Hostile) -> int:
    records = [{"partition": partition, "value": ""} for partition in range(PARTITIONS)]
    key = f"{user.name}-{next(user.keys)}"
    return user.ask("POST", f"/v1/topics/{user.wide}/records", {"records": records}, Idempotency_Key=key)[0]


def wrong_passwords(user: Hostile) -> int:
    return user.ask("GET", "/v1/topics", password="another one")[0]


# --- rights ------------------------------------------------------------------------------------------


def links_with_secrets(user: Hostile) -> int:
    for secret in ({"sasl.password.file": "/etc/hostname"}, {"sasl.password.env": "PATH"}):
        security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "x", **secret}
        link = {"name": f"{user.name}-link", "source": ["127.0.0.1:9"], "topics": ["x"], "security": security}
        status = user.ask("POST", "/v1/links", link)[0]
        _refused(user, "a link that names a secret", status)
    return status


def configs_without_rights(user: Hostile) -> int:
    for topic, configs in (
        (user.own, {"headwater.dlq.topic": HONEST}),
        (user.own, {"headwater.value.schema": f"subject:{HONEST}-value"}),
        (HONEST, {"retention.ms": "1"}),
        (HONEST, {"headwater.dlq.topic": user.own}),
    ):
        status = user.ask("PATCH", f"/v1/topics/{topic}/configs", {"set": configs})[0]
        _refused(user, f"{next(iter(configs))} of {'its own topic' if topic == user.own else 'another'}", status)
    return status


def modes_without_rights(user: Hostile) -> int:
    status = user.ask("PUT", f"/mode/{user.own}-value", {"mode": "IMPORT"})[0]
    _refused(user, "mode IMPORT", status)
    _refused(user, "records of others", user.ask("GET", f"/v1/topics/{HONEST}/records?limit=1")[0])
    _refused(user, "SQL over a topic of others", user.ask("POST", "/v1/sql", {"sql": f"FROM {HONEST}"})[0])
    return status


def _refused(user: Hostile, what: str, status: int) -> None:
    user.breaches[what] += 200 <= status < 300


REPEATED: tuple[Callable[[Hostile], int], ...] = (
    long_show, avro_defaults, nested_all_of, protobuf_spaces, large_json_schema, flight_filter, endless_sql,
    endless_sql, empty_payloads, bombs, large_joins, wide_keys, wrong_passwords, links_with_secrets,
    configs_without_rights, modes_without_rights,
)  # fmt: skip
"""Attacks that are repeated. Each returns the code of an answer."""
HELD: tuple[Callable[[Hostile], None], ...] = (idle_kafka, idle_http, idle_pages, slow_forms, slow_bodies)
"""Attacks that hold connections."""


def repeat(user: Hostile, attack: Callable[[Hostile], int]) -> None:
    """Attack until the process is ended. What the server refuses does not end it."""
    while True:
        try:
            told: object = attack(user)
        except (OSError, Closed, http.client.HTTPException, flight.FlightError) as error:
            told = type(error).__name__
        user.answers[f"{attack.__name__}: {told}"] += 1
        time.sleep(PAUSE_S)  # the pace of the attack


NAMES = sorted({attack.__name__ for attack in (*REPEATED, *HELD)})


def threads(user: Hostile, only: Sequence[str]) -> Iterator[threading.Thread]:
    """All attacks, or those of some names."""
    for attack in REPEATED:
        if not only or attack.__name__ in only:
            yield threading.Thread(target=repeat, args=(user, attack), daemon=True)
    for held in HELD:
        if not only or held.__name__ in only:
            yield threading.Thread(target=held, args=(user,), daemon=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    for port in ("kafka", "http", "flight", "pages"):
        parser.add_argument(port, type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", action="append", choices=NAMES)
    options = parser.parse_args()
    os.nice(BEHIND)
    user = Hostile(options.name, options.kafka, options.http, options.flight, options.pages)
    working = list(threads(user, options.only or ()))
    for thread in working:
        thread.start()
    new = options.file.with_suffix(".new")
    while True:
        ended = [thread.name for thread in working if not thread.is_alive()]
        told = {"answers": dict(user.answers), "breaches": dict(user.breaches), "ended": ended}
        new.write_text(json.dumps(told))
        new.rename(options.file)
        time.sleep(1)  # how often it tells


if __name__ == "__main__":
    main()
