"""A connection by URL: what it sends, and that an answer that was cut off is never taken for the whole."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any

import pyarrow as pa
import pytest

import headwater
from headwater.errors import BadInput, ConfigError, NotFound, NotReady
from headwater.query.scan import schema_of
from headwater.sdk import http as sdk_http
from headwater.sdk.records import Appended, NewRecord, Place, Record, as_bytes, as_ms
from tests.unit.sdk.test_http import Fake, Reply, fake, lost, told


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_http, "FIRST_PAUSE", 0.001)


def sent(gateway: Fake) -> list[Any]:
    return [json.loads(body) for _, _, body in gateway.asked]


def one(partition: int, offset: int) -> Reply:
    return told(200, partitions=[], records=[{"partition": partition, "offset": offset}])


def many(partition: int, first: int, last: int) -> Reply:
    return told(200, partitions=[{"partition": partition, "first_offset": first, "last_offset": last}])


def test_a_record() -> None:
    with fake(one(2, 5)) as gateway, headwater.connect(gateway.url) as cluster:
        place = cluster.produce(
            "a/b", b"\xff", key="k", headers=[("h", b"\x80"), ("h", None)], partition=2,
            timestamp=datetime(2026, 1, 1, tzinfo=UTC), idempotency_key="once", expected_offset=5,
        )  # fmt: skip
        assert place == Place(2, 5)
        [(line, headers, _)] = gateway.asked
        assert line == "POST /v1/topics/a%2Fb/records" and headers["Idempotency-Key"] == "once"
        assert sent(gateway) == [
            {
                "records": [
                    {
                        "value_base64": "/w==",
                        "key": "k",
                        "headers": [{"name": "h", "value_base64": "gA=="}, {"name": "h", "value": None}],
                        "partition": 2,
                        "timestamp": 1767225600000,
                    }
                ],
                "expected_offset": 5,
            }
        ]
        cluster.topic("t").produce({"a": [1]})
        assert sent(gateway)[-1] == {"records": [{"value": '{"a":[1]}'}]}
        assert "Idempotency-Key" not in gateway.asked[-1][1]


def test_single_records() -> None:
    """A key goes as base64, and so does what comes back. That there is no record is no error."""
    line = {"partition": 1, "offset": 5, "timestamp": 9, "key_base64": "/w==", "value": None}
    replies = told(200, record=line), told(404, type="/problems/no-record"), told(404, type="/problems/not-found")
    with fake(*replies) as gateway, headwater.connect(gateway.url) as cluster:
        assert cluster.latest("t", b"\xff", partition=1) == Record("t", 1, 5, 9, b"\xff", None, ())
        assert cluster.topic("t").get(1, 6) is None
        assert [line for line, _, _ in gateway.asked] == [
            "GET /v1/topics/t/latest?key_base64=%2Fw%3D%3D&partition=1&format=base64",
            "GET /v1/topics/t/partitions/1/records/6?format=base64",
        ]
        with pytest.raises(NotFound):
            cluster.latest("none", "k")
        with pytest.raises(BadInput, match="the key is missing"):
            cluster.latest("t", None)
        with pytest.raises(BadInput, match="-1 is not the number"):
            cluster.get("t", -1, 0)


def test_many_records_in_batches_with_keys() -> None:
    """A batch whose answer was lost is sent again under the same key, with the same bytes."""
    with fake(many(0, 0, 1), lost, many(1, 7, 8), many(0, 4, 4)) as gateway, headwater.connect(gateway.url) as cluster:
        made = cluster.produce_many("t", ["a", b"b", NewRecord(value=None, key="c"), "d", "e"], batch_records=2)
        assert made == Appended(5, {0: (0, 4), 1: (7, 8)})
        keys = [headers["Idempotency-Key"] for _, headers, _ in gateway.asked]
        base = keys[0].removesuffix("-0")
        assert keys == [f"{base}-0", f"{base}-1", f"{base}-1", f"{base}-2"] and len(base) == 32
        assert gateway.asked[1][2] == gateway.asked[2][2]
        assert [len(body["records"]) for body in sent(gateway)] == [2, 2, 2, 1]
        assert all(headers["Prefer"] == "return=minimal" for _, headers, _ in gateway.asked)
    with fake(many(0, 0, 0)) as gateway, headwater.connect(gateway.url) as cluster:
        cluster.produce_many("t", ["x" * 60] * 3, batch_bytes=100, idempotency_key="job")
        assert [headers["Idempotency-Key"] for _, headers, _ in gateway.asked] == ["job-0", "job-1", "job-2"]
        assert cluster.produce_many("t", []) == Appended(0, {})


def test_bad_input_is_refused_before_anything_is_sent() -> None:
    with fake(one(0, 0)) as gateway, headwater.connect(gateway.url) as cluster:
        refused: list[tuple[str, Any]] = [
            ("the value is a int", lambda: cluster.produce("t", 5)),  # type: ignore[arg-type]
            ("the key cannot be encoded", lambda: cluster.produce("t", "v", key="\ud800")),
            ("the value cannot be encoded", lambda: cluster.produce("t", {"a": object()})),
            ("name of a topic is missing", lambda: cluster.produce("", "v")),
            ("visible characters", lambda: cluster.produce("t", "v", idempotency_key="two words")),
            ("has no time zone", lambda: cluster.produce("t", "v", timestamp=datetime(2026, 1, 1))),
            ("not a time", lambda: cluster.produce("t", "v", timestamp=True)),
            ("name of a header is a int", lambda: cluster.produce("t", "v", headers=[(1, b"")])),  # type: ignore[list-item]
            ("between 1 and 10,000", lambda: cluster.produce_many("t", [], batch_records=0)),
            ("each of them once", lambda: cluster.scan("t", columns=["key", "key"])),
            ("not the number of a partition", lambda: cluster.scan("t", partitions=[-1])),
            ("not an offset", lambda: cluster.scan("t", from_offset=-1)),
            ("not an offset", lambda: cluster.scan("t", until_offset={0: -1})),
            ("`start` is 'oldest'", lambda: cluster.consume("t", start="oldest")),
            ("name of the group is empty", lambda: cluster.consume("t", group="")),
        ]
        for words, call in refused:
            with pytest.raises(BadInput, match=words):
                call()
        assert not gateway.asked


def test_bad_places() -> None:
    for where, words in (("", "give the URL"), ("/nowhere/at/all", "no directory or file")):
        with pytest.raises((ConfigError, NotFound), match=words):
            headwater.connect(where)
    with pytest.raises(ConfigError, match="above 0"):
        headwater.connect("http://127.0.0.1:1", timeout=0)


def test_a_directory_that_is_not_a_clusters(tmp_path: Any) -> None:
    """Nothing is created in it."""
    with pytest.raises(NotFound, match=r"not the data directory of a cluster: it has no ledger.db"):
        headwater.connect(str(tmp_path))
    assert not list(tmp_path.iterdir())


def rows(count: int, *, whole: bool, batches: int = 2) -> Reply:
    """An Arrow stream in one chunk per batch. If it is not whole, the connection ends before the last chunk."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        schema = schema_of(["offset"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            for _ in range(batches):
                writer.write_batch(pa.record_batch([list(range(count))], schema=schema))
        data = sink.getvalue().to_pybytes()
        if not whole:
            data = data[:-8]  # without the end that Arrow marks: a reader could take it for the whole
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if whole:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_WR)

    return reply


def test_scans() -> None:
    with fake(rows(3, whole=True)) as gateway, headwater.connect(gateway.url) as cluster:
        scan = cluster.topic("t").scan(
            columns=["offset"], partitions=[2, 0], from_offset=4, until_offset={0: 9}, from_time=10,
            until_time=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), version=3,
        )  # fmt: skip
        assert not gateway.asked
        assert scan.to_arrow()["offset"].to_pylist() == [0, 1, 2] * 2
        assert gateway.asked[0][0] == (
            "GET /v1/topics/t/rows?columns=offset&partitions=0%2C2&from_offset=4&until_offsets=0%3A9&from=10"
            "&until=1000&version=3"
        )
        assert [batch.num_rows for batch in scan.to_batches()] == [3, 3]
        assert scan.schema.names == ["offset"] and "&until_offset=0&" in gateway.asked[-1][0]
        all_columns = cluster.scan("t")
        assert all_columns.to_arrow().num_rows == 6 and gateway.asked[-1][0] == "GET /v1/topics/t/rows"
        assert len(scan.to_pandas()) == 6 and scan.to_reader().read_all().num_rows == 6


def test_a_scan_becomes_a_frame_of_polars() -> None:
    with fake(rows(3, whole=True)) as gateway, headwater.connect(gateway.url) as cluster:
        assert cluster.scan("t", columns=["offset"]).to_polars()["offset"].to_list() == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (rows(3, whole=False), NotReady, "ended early"),
        (told(404, type="/problems/not-found", detail="there is no topic 't'"), NotFound, "no topic 't'"),
    ],
)
def test_a_part_is_never_taken_for_the_whole(reply: Reply, kind: type[Exception], words: str) -> None:
    with (
        fake(reply) as gateway,
        headwater.connect(gateway.url) as cluster,
        pytest.raises(kind, match=words),
    ):
        cluster.scan("t", columns=["offset"]).to_arrow()


def test_records_as_text_and_json() -> None:
    record = Record("t", 0, 7, 0, None, b'{"a":1}', ())
    assert record.text == '{"a":1}' and record.json() == {"a": 1}
    bad = Record("t", 0, 7, 0, None, b"\xff", ())
    with pytest.raises(BadInput, match="offset 7 of partition 0 is not UTF-8"):
        _ = bad.text
    with pytest.raises(BadInput, match="is not JSON"):
        bad.json()
    gone = Record("t", 0, 7, 0, None, None, ())
    assert gone.text is None and gone.json() is None
    assert as_bytes("value", bytearray(b"x")) == b"x" and as_ms(5) == 5
