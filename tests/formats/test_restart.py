"""A restart loses nothing of any kind: log, tables, groups, users, in checkpoints and in records after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka as ck
import deltalake
import pytest
from kio.schema.errors import ErrorCode

from harness.process import headwater
from tests.faults.raw import Raw
from tests.formats.written import (
    ACCESS,
    COPIED,
    FILLED,
    GAPPED,
    LETTERS,
    OPEN,
    PAID,
    PAYMENTS,
    PROMOTED,
    STAGED,
    TYPED,
    VOID,
    committed,
    holds,
    look,
    look_into,
    read_topic,
    write,
)
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("M5",)

pytestmark = pytest.mark.long
END_TXN = 26


def check_doctor(data: Path, tables: int) -> None:
    done = headwater("doctor", "--data", str(data))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"checked {tables} tables" in done.stdout, done.stdout


def check_goes_on(server: Running, expected: dict[str, Any]) -> None:
    """A new record has the next offset of its partition."""
    producer = ck.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    producer.produce("orders", b"new", partition=0)
    assert producer.flush(60) == 0
    after = read_topic(server.bootstrap, "orders", 3)
    assert [row for row in after if row[4] == "new"] == [row for row in after if row not in expected["orders"]]


def check_delta(data: Path, topic: str, rows: list[list[Any]], least: int) -> int:
    """Delta's table of a topic has that many of these rows at least, and no others; returns how many."""
    [root] = (data / "objects" / "tables").glob(f"{topic}-*")
    table = deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=["partition", "offset", "key", "value"])
    settled = {(row["partition"], row["offset"]): (row["key"], row["value"]) for row in table.to_pylist()}
    written = {(row[0], row[1]): tuple(v.encode() if v is not None else None for v in row[3:5]) for row in rows}
    assert len(settled) >= least and settled.items() <= written.items()
    return len(settled)


def check_ended(server: Running, expected: dict[str, Any]) -> None:
    """What was open is committed by its producer: its records appear, and its offsets are those of the group."""
    known = expected["transactions"]
    assert {name: one["state"] for name, one in known.items()} == {
        PAID: "CompleteCommit", VOID: "CompleteAbort", OPEN: "Ongoing", STAGED: "Ongoing",
    }  # fmt: skip
    with Raw(server.port) as connection:
        for name in (OPEN, STAGED):
            who = {"producer_id": known[name]["producer"], "producer_epoch": known[name]["epoch"]}
            answer = connection.ask(END_TXN, 3, transactional_id=name, committed=True, **who)
            assert answer.error_code is ErrorCode.none
            late = connection.ask(END_TXN, 3, transactional_id=name, committed=False, **who)
            assert late.error_code is ErrorCode.invalid_txn_state
    after = read_topic(server.bootstrap, PAYMENTS, 2)
    assert [row[4] for row in after if row not in expected["payments"]] == ["open", "staged", "last"]
    assert committed(server.bootstrap, STAGED, "orders", 3) == {"0": 20, "1": 21, "2": 22}
    aborted = [row for row in expected["payments, uncommitted"] if row not in after]
    assert [(row[3], row[4]) for row in aborted] == [(VOID, "c"), (VOID, "d")], "those before them are settled"


def check_mirrors(server: Running, expected: dict[str, Any]) -> None:
    """A topic that a link copies refuses producers and says why. One that was promoted goes on where it was."""
    assert [link["phase"] for link in expected["links"]] == ["copying", "promoted"]
    assert [row[1] for row in expected[COPIED]] == [5, 6]
    assert [row[1] for row in expected[PROMOTED]] == [5, 6, 12, 13, 14]
    told: dict[str, tuple[Any, int]] = {}
    producer = ck.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for topic in (COPIED, PROMOTED):
        producer.produce(
            topic, b"new", on_delivery=lambda error, got: told.update({got.topic(): (error, got.offset())})
        )
    assert producer.flush(60) == 0
    error, _ = told[COPIED]
    assert error.code() == ck.KafkaError.INVALID_REQUEST, error
    assert told[PROMOTED] == (None, 15)
    assert read_topic(server.bootstrap, COPIED, 1) == expected[COPIED]


def check_typed(expected: dict[str, Any]) -> None:
    """Two versions of a schema are columns, a record without one is a dead letter, and JSON of before has columns."""
    rows = expected["columns"][TYPED]
    assert [row["value_data"] for row in rows] == [{"n": 1, "who": None}, {"n": 2, "who": "ann"}, None]
    assert [row["decode_error"] is None for row in rows] == [True, True, False]
    filled = [row["value_data"] for row in expected["columns"][FILLED]]
    assert filled == [{"a": 1, "b": None}, {"a": 2, "b": {"c": "x"}}]
    assert expected[LETTERS] == [[None, "no schema"]]
    assert len(expected[TYPED]) == len(rows) + 1, "the last record is in the WAL"


@promise("M5", "K12")
@pytest.mark.timeout(400)
def test_content_of_every_kind_survives_a_restart(tmp_path: Path) -> None:
    """Nothing is lost or changed, and the cluster goes on from there, with transactions and gaps."""
    data, expected = write(tmp_path / "writer")
    check_doctor(data, tables=9)
    assert [hold["versions"] for hold in holds(data)] == [1], "its process died, and nobody has fenced it"
    with Running(tmp_path / "server", data=data, settings=ACCESS) as server:
        assert look(server.bootstrap) | look_into(data) == expected
        check_goes_on(server, expected)
        check_mirrors(server, expected)
        check_ended(server, expected)
    check_delta(data, "orders", expected["orders"], least=350)
    settled = check_delta(data, PAYMENTS, expected["payments"], least=1)
    assert settled == len(expected["payments"]), "all that was committed before the open transactions is settled"
    check_delta(data, COPIED, expected[COPIED], least=2)
    check_delta(data, PROMOTED, expected[PROMOTED], least=2)
    check_typed(expected)
    assert [row[1] for row in expected[GAPPED]] == [5, 6, 20, 30, 1 << 33]
    check_delta(data, GAPPED, expected[GAPPED], least=3)
