"""Rows as messages, and messages as parameters: small, whole, and never trusted."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import BadInput
from headwater.gateway.flight.encoding import MAX_MESSAGE_BYTES, frames, plain, schema_frame, values_of
from headwater.gateway.flight.messages import flight, parsed

PROMISES = ("Q7",)

Pieces = list[tuple[bytes, bytes]]


def pieces(table: pa.Table, **options: Any) -> Pieces:
    """The heads and bodies that a client sends."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    found: Pieces = []
    for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        body = message.body.to_pybytes() if message.body is not None else b""
        found.append((message.metadata.to_pybytes(), body))
    return found


def test_rows_come_back() -> None:
    """Also those of a dictionary, in messages that every driver takes."""
    words = pa.array(["a", None, "b"] * 1_000).dictionary_encode()
    large = pa.array([b"x" * 10_000] * 3_000)
    batch = pa.record_batch([words, large, pa.array(range(3_000))], names=["w", "l", "n"])
    schema = plain(batch.schema)
    made = [schema_frame(schema), *frames(batch, schema)]
    assert len(made) > 10 and max(map(len, made)) < 2 * MAX_MESSAGE_BYTES
    stream = b""
    for frame in made:
        message = parsed(flight.Data, frame)
        head = message.data_header
        stream += b"\xff\xff\xff\xff" + len(head).to_bytes(4, "little") + head + message.data_body
    table = pa.ipc.open_stream(stream).read_all()
    assert table.to_pydict() == pa.Table.from_batches([batch]).to_pydict()
    assert list(frames(batch.slice(0, 0), schema)) == []


def test_values() -> None:
    moment = datetime.datetime(2026, 11, 17, 22, 0, tzinfo=datetime.UTC)
    given = {
        "a": pa.array([1], pa.int16()),
        "b": pa.array([None], pa.int64()),
        "c": pa.array(["text"]),
        "d": pa.array([b"bytes"]),
        "e": pa.array([True]),
        "f": pa.array([0.5]),
        "g": pa.array([moment], pa.timestamp("us", "UTC")),
        "h": pa.array([Decimal("1.50")]),
        "i": pa.array([None], pa.null()),
        "j": pa.array([None], pa.timestamp("us")),
    }
    found = values_of(pieces(pa.table(given)))
    assert found[:6] == (1, None, "text", b"bytes", True, 0.5)
    assert str(found[6]).startswith("2026-11-17 22:00:00") and found[7:] == ("1.50", None, None)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (pa.table({"a": [1, 2]}), {}, "not 2"),
        (pa.table({"a": pa.array([], pa.int64())}), {}, "not 0"),
        (pa.table({"a": [[1]]}), {}, "cannot be of the type"),
        (pa.table({"a": ["x" * 1_000]}), {"compression": "zstd"}, "compressed"),
        (pa.table({"a": pa.array(["x"]).dictionary_encode()}), {}, "dictionary"),
    ],
)
def test_what_is_no_parameter(table: pa.Table, options: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        values_of(pieces(table, **options))


def test_bytes_of_a_stranger() -> None:
    """Each is refused, or gives values; none ends the process."""
    table = pa.table({"a": pa.array([7], pa.int64()), "b": ["word"], "c": [b"bytes"]})
    whole, chance = pieces(table), random.Random(7)
    for _ in range(2_000):
        spoilt = [[bytearray(head), bytearray(body)] for head, body in whole]
        for _ in range(chance.randint(1, 4)):
            part = chance.choice([part for message in spoilt for part in message if part])
            if chance.random() < 0.2:
                del part[chance.randrange(len(part)) :]
            else:
                part[chance.randrange(len(part))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        try:
            assert len(values_of([(bytes(head), bytes(body)) for head, body in spoilt])) <= 3
        except BadInput:
            pass
