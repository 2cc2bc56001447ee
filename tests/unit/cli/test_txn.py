"""`headwater txn`, its output, its filters and its question."""

import contextlib
import io
import json
from collections.abc import Iterator

import pytest
import typer

from headwater.cli import common, txn
from headwater.clock import SystemClock
from tests.support.transaction_brokers import INIT_PRODUCER_ID, Id, TransactionBrokers

PROMISES = ("K12",)

OK, CONFIG, KAFKA, INTERRUPTED = 0, 1, 2, 130


@pytest.fixture
def brokers() -> Iterator[TransactionBrokers]:
    now = SystemClock().wall_ms()
    ids = {
        "orders": Id(0, "Ongoing", 7, 3, now - 100_000, {"t": [0, 2], "u": [1]}),
        "other": Id(1, "CompleteAbort", 9, 5, now - 500_000),
        "new": Id(1, "Empty", 10, 0),
    }
    with TransactionBrokers(ids) as running:
        yield running


def headwater(brokers: TransactionBrokers, *arguments: str) -> tuple[int, str, str]:
    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
    txn.register(app)
    app.command("none")(lambda: None)
    written, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(written)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = common.call(app, ["txn", *arguments, "--bootstrap", brokers.bootstrap])
        out.flush()
    said = written.getvalue().decode().removeprefix(" ")  # behind a question that no terminal shows
    return code, said, err.getvalue()


def test_list(brokers: TransactionBrokers) -> None:
    code, out, err = headwater(brokers, "list")
    rows = [line.split() for line in out.splitlines()]
    assert (code, err) == (OK, "")
    assert rows[0] == ["ID", "STATE", "PRODUCER", "EPOCH", "AGE", "PARTITIONS"]
    assert rows[1] == ["new", "Empty", "10", "0", "-", "-"]
    assert rows[2][:4] + rows[2][5:] == ["orders", "Ongoing", "7", "3", "3"] and int(rows[2][4].rstrip("s")) >= 100
    assert rows[3] == ["other", "CompleteAbort", "9", "5", "-", "-"]
    documents = json.loads(headwater(brokers, "list", "--output", "json")[1])
    assert [document["id"] for document in documents] == ["new", "orders", "other"]
    assert documents[0] == {
        "id": "new",
        "state": "Empty",
        "open": False,
        "producer": 10,
        "epoch": 0,
        "timeout_ms": 60_000,
        "started_ms": None,
        "age_seconds": None,
        "partitions": [],
    }


def test_list_with_filters(brokers: TransactionBrokers) -> None:
    def ids(*arguments: str) -> list[str]:
        code, out, _ = headwater(brokers, "list", "--output", "json", *arguments)
        assert code == OK
        return [document["id"] for document in json.loads(out)]

    assert ids("--state", "Ongoing") == ["orders"]
    assert ids("--state", "Ongoing", "--state", "Empty") == ["new", "orders"]
    assert ids("--older-than", "90s") == ["orders"]
    assert headwater(brokers, "list", "--state", "CompleteCommit") == (OK, "", "there are no transactions\n")
    for arguments, says in ((("--state", "ongoing"), "no state 'ongoing'"), (("--older-than", "long"), "a duration")):
        code, out, err = headwater(brokers, "list", *arguments)
        assert (code, out) == (CONFIG, "") and says in err


def test_describe(brokers: TransactionBrokers) -> None:
    code, out, _ = headwater(brokers, "describe", "orders")
    lines = out.splitlines()
    assert code == OK and lines[0].startswith("transactional id orders, Ongoing, open for 1")
    assert lines[1:3] == ["producer 7, epoch 3", "time-out 60 s"]
    assert [line.split() for line in lines[4:]] == [["TOPIC", "PARTITION"], ["t", "0"], ["t", "2"], ["u", "1"]]
    document = json.loads(headwater(brokers, "describe", "orders", "--output", "json")[1])
    assert document["partitions"][2] == {"topic": "u", "partition": 1}
    assert headwater(brokers, "describe", "other")[1].startswith("transactional id other, CompleteAbort\n")
    code, _, err = headwater(brokers, "describe", "nobody")
    assert code == KAFKA and "there is no such transactional id" in err


def test_abort(brokers: TransactionBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks in a terminal, and refuses where nobody can answer."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = headwater(brokers, "abort", "orders")
    assert code == CONFIG and "--yes" in err
    monkeypatch.setattr(txn, "_in_terminal", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, err = headwater(brokers, "abort", "orders")
    assert (code, out) == (INTERRUPTED, "") and "has 3 partitions. Abort it?" in err
    assert brokers.ids["orders"].state == "Ongoing" and not brokers.asked(INIT_PRODUCER_ID)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, out, _ = headwater(brokers, "abort", "orders")
    assert (code, out) == (OK, "transaction orders aborted\n")
    assert (brokers.ids["orders"].state, brokers.ids["orders"].epoch) == ("Empty", 4)
    code, _, err = headwater(brokers, "abort", "orders", "--yes")
    assert code == CONFIG and "has no open transaction; its state is Empty" in err


def test_abort_without_a_question(brokers: TransactionBrokers) -> None:
    code, out, _ = headwater(brokers, "abort", "orders", "--yes", "--output", "json")
    assert (code, json.loads(out)) == (OK, {"name": "orders", "result": "aborted"})
    [(broker, body)] = brokers.asked(INIT_PRODUCER_ID)
    assert (broker, body.producer_id, body.producer_epoch) == (0, 7, 3)
