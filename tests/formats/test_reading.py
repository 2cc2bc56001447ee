"""This build reads what earlier builds wrote: log, tables, groups, users, checkpoints, records after them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import deltalake
import pytest
from kio.schema.errors import ErrorCode

from harness.process import headwater
from headwater.state.machine import LEVEL
from headwater.state.streams.domain import HOLDS_LEVEL
from tests.faults.raw import Raw
from tests.formats.written import (
    ACCESS,
    COPIED,
    EXPECTED,
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
)
from tests.support.promise import promise
from tests.support.running import Running
from tests.support.soak import WHOLE
from tests.support.transactional import PLAIN, Writers

PROMISES = ("M5",)

pytestmark = pytest.mark.long
FIND_COORDINATOR, INIT_PRODUCER_ID, END_TXN = 10, 22, 26
TRANSACTION = 1
"""The type of coordinator that FindCoordinator is asked for."""

FIXTURES = sorted(Path(__file__).parent.glob("level-*.tar.xz"))
READ = FIXTURES if WHOLE else [FIXTURES[0], FIXTURES[-1]]
"""`make test` reads the oldest and the newest, the soak every one."""


@promise("M5")
def test_there_are_fixtures() -> None:
    """Without them the next test would test nothing."""
    assert FIXTURES


def unpacked(fixture: Path, data: Path) -> dict[str, Any]:
    """Unpack a data directory; returns what is in it, as its writer saw it."""
    data.mkdir()
    subprocess.run(["tar", "-xJf", str(fixture), "-C", str(data)], check=True, timeout=60)
    expected: dict[str, Any] = json.loads((data / EXPECTED).read_text())
    return expected


def _level_of(fixture: Path) -> int:
    return int(fixture.name.removeprefix("level-").removesuffix(".tar.xz"))


def check_doctor(data: Path, tables: int) -> None:
    done = headwater("doctor", "--data", str(data))
    problems = [line for line in done.stdout.splitlines() if line.startswith("PROBLEM")]
    assert f"checked {tables} tables" in done.stdout, done.stdout + done.stderr
    assert all(" iceberg: " in line and "is outside" in line for line in problems), "Iceberg's files name their place"


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


def check_raised(server: Running) -> None:
    """Transactions are refused until the level is raised, and work from then on."""
    with Raw(server.port) as connection:
        [place] = connection.ask(FIND_COORDINATOR, 4, key_type=TRANSACTION, coordinator_keys=["new"]).coordinators
        assert "run `headwater cluster upgrade`" in place.error_message
        asked = {"transactional_id": "new", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        assert connection.ask(INIT_PRODUCER_ID, 4, **asked).error_code is ErrorCode.invalid_transaction_timeout
    writers = Writers(server.bootstrap)
    with pytest.raises(ck.KafkaException) as refused:
        writers.producer("new")
    assert not refused.value.args[0].retriable()
    done = headwater("cluster", "upgrade", "--bootstrap", server.bootstrap)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the cluster is at level {LEVEL} now; it was at 1" in done.stdout
    before = read_topic(server.bootstrap, "orders", 3)
    for name, commit in (("kept", True), ("dropped", False)):
        writers.write(name, "orders", 0, name.encode())
        writers.stage(name, name, "orders", [1, 2, 3])
        writers.end(name, commit=commit)
        writers.write(PLAIN, "orders", 0, b"between")
    after = read_topic(server.bootstrap, "orders", 3)
    assert [row[4] for row in after if row not in before] == ["kept", "between", "between"]
    assert committed(server.bootstrap, "kept", "orders", 3) == {"0": 1, "1": 2, "2": 3}
    assert committed(server.bootstrap, "dropped", "orders", 3) == dict.fromkeys("012", ck.OFFSET_INVALID)


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
@pytest.mark.timeout(180)
@pytest.mark.parametrize("fixture", READ, ids=lambda path: path.name)
def test_what_earlier_builds_wrote_is_read(tmp_path: Path, fixture: Path) -> None:
    """Nothing is lost or changed, and the cluster goes on from there, with transactions and gaps."""
    data = tmp_path / "data"
    expected = unpacked(fixture, data)
    transactional = PAYMENTS in expected
    check_doctor(data, 2 + transactional + (GAPPED in expected) + 2 * (COPIED in expected) + 3 * (TYPED in expected))
    if _level_of(fixture) >= HOLDS_LEVEL:
        assert [hold["versions"] for hold in holds(data)] == [1], "its process died, and nobody has fenced it"
    with Running(tmp_path / "server", data=data, settings=ACCESS) as server:
        assert look(server.bootstrap, expected) | look_into(data, expected) == expected
        check_goes_on(server, expected)
        if COPIED in expected:
            check_mirrors(server, expected)
        if transactional:
            check_ended(server, expected)
        else:
            check_raised(server)
    check_delta(data, "orders", expected["orders"], least=350)
    if transactional:
        settled = check_delta(data, PAYMENTS, expected["payments"], least=1)
        assert settled == len(expected["payments"]), "all that was committed before the open transactions is settled"
    if COPIED in expected:
        check_delta(data, COPIED, expected[COPIED], least=2)
        check_delta(data, PROMOTED, expected[PROMOTED], least=2)
    if TYPED in expected:
        check_typed(expected)
    if GAPPED in expected:
        assert [row[1] for row in expected[GAPPED]] == [5, 6, 20, 30, 1 << 33]
        check_delta(data, GAPPED, expected[GAPPED], least=3)
