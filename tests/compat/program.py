"""A client in another language: a program that does one JSON request a line and answers with one line.

    {"do": "create", "topic": T, "partitions": N}                                   -> null
    {"do": "write", "topic": T, "partition": P, "codec": C, "records": [RECORD...]} -> [OFFSET...]
    {"do": "read", "topic": T, "starts": {P: OFFSET}, "count": N, "timeout_ms": N}  -> [RECORD...]
    {"do": "offset_for_time", "topic": T, "partition": P, "timestamp": MS}          -> OFFSET or null

A RECORD is {"timestamp": MS, "key": HEX or null, "value": HEX or null, "headers": [[NAME, HEX or null]...]},
and one that was read has "partition" and "offset" too. The answer is {"ok": ...} or {"error": TEXT}.
The program is called with the bootstrap address as its last argument and ends when its input does.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

from tests.compat.common import DEADLINE_S, Received, Record


class Program(AbstractContextManager["Program"]):
    def __init__(self, command: Sequence[str], bootstrap: str, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [*command, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        assert self._process.returncode == 0

    def create_topic(self, topic: str, partitions: int) -> None:
        self._call("create", topic=topic, partitions=partitions)

    def write(self, topic: str, partition: int, codec: str, records: Sequence[Record]) -> list[int]:
        encoded = [_encode(self.as_written(record)) for record in records]
        offsets: list[int] = self._call("write", topic=topic, partition=partition, codec=codec, records=encoded)
        return offsets

    def as_written(self, record: Record) -> Record:
        return record

    def read(self, topic: str, starts: Mapping[int, int], count: int) -> list[Received]:
        timeout_ms = int(DEADLINE_S * 1000)
        answer = self._call("read", topic=topic, starts=starts, count=count, timeout_ms=timeout_ms)
        return [_decode(each) for each in answer]

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        offset: int | None = self._call("offset_for_time", topic=topic, partition=partition, timestamp=timestamp)
        return offset

    def _call(self, do: str, **arguments: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended during {do}, see its standard error")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{do}: {answer['error']}")
        return answer["ok"]


def _encode(record: Record) -> dict[str, object]:
    return {
        "timestamp": record.timestamp,
        "key": _hex(record.key),
        "value": _hex(record.value),
        "headers": [[name, _hex(value)] for name, value in record.headers],
    }


def _decode(answer: Mapping[str, Any]) -> Received:
    headers = tuple((name, _bytes(value)) for name, value in answer["headers"])
    record = Record(answer["timestamp"], _bytes(answer["key"]), _bytes(answer["value"]), headers)
    return Received(answer["partition"], answer["offset"], record)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
