"""The commands `topic`, `produce` and `consume` against a real server, and their exit codes."""

import asyncio
import base64
import contextlib
import io
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.ports import free_port
from headwater.cli import common, consume, group, produce, topic, txn
from headwater.client.client import Client
from headwater.client.routing import TRANSACTION_KEY
from headwater.errors import (
    ConfigError,
)
from tests.support.promise import promise

PROGRAM = """
import signal, sys, typer
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
from headwater.cli import common, consume, produce, topic
app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
for module in (topic, produce, consume):
    module.register(app)
sys.exit(common.call(app))
"""


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    made = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
    for module in (topic, produce, consume, group, txn):
        module.register(made)
    return made


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Commands:
    """Runs commands in this process, with a server's address."""

    def __init__(self, app: typer.Typer, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._app = app
        self.bootstrap = bootstrap
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stdin: bytes = b"", bootstrap: str | None = None) -> Result:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = common.call(self._app, [*arguments, "--bootstrap", bootstrap or self.bootstrap])
            out.flush()
        return Result(code, out.buffer.getvalue(), err.getvalue())  # type: ignore[attr-defined]

    def ok(self, *arguments: str, stdin: bytes = b"") -> Result:
        result = self(*arguments, stdin=stdin)
        assert (result.code, result.err) == (0, "")
        return result


@pytest.fixture
def headwater(app: typer.Typer, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(app, bootstrap, monkeypatch)


@pytest.fixture
def name(headwater: Commands) -> Iterator[str]:
    """A topic with three partitions."""
    made = f"cli.{uuid.uuid4().hex[:12]}"
    headwater.ok("topic", "create", made, "--partitions", "3")
    yield made
    headwater("topic", "delete", "--yes", made)


def fresh() -> str:
    return f"cli.{uuid.uuid4().hex[:12]}"


# --- topic ---------------------------------------------------------------------------------------------


def test_topics_are_created_listed_altered_and_deleted(headwater: Commands) -> None:
    name = fresh()
    made = headwater.ok("topic", "create", name, "--partitions", "2", "--config", "retention.ms=3600000")
    assert made.out == f"topic {name} created\n".encode()
    (row,) = [row for row in headwater.ok("topic", "list", "--output", "json").json if row["name"] == name]
    assert (row["partitions"], row["internal"]) == (2, False)
    everything = headwater.ok("topic", "list", "--internal", "--output", "json").json
    assert [row["name"] for row in everything if row["internal"]] == ["__consumer_offsets", "__transaction_state"]
    assert len(headwater.ok("topic", "list", "--output", "json").json) == len(everything) - 2
    assert [name, "2"] in [line.split()[:2] for line in headwater.ok("topic", "list").out.decode().splitlines()]

    changes = ["--config", "max.message.bytes=5000", "--delete-config", "retention.ms", "--partitions", "3"]
    headwater.ok("topic", "alter", name, *changes)
    headwater.ok("produce", name, "--partition", "2", stdin=b"a\nb\n")
    described = headwater.ok("topic", "describe", name, "--output", "json").json
    assert [(p["partition"], p["start"], p["end"]) for p in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 2),
    ]
    own = {config["name"]: config["value"] for config in described["configs"] if config["source"] == "topic"}
    assert own == {"max.message.bytes": "5000"}
    shown = [line.split() for line in headwater.ok("topic", "describe", name).out.decode().splitlines()]
    assert ["max.message.bytes", "5000", "topic"] in shown
    assert "retention.ms" not in [words[0] for words in shown if words]

    assert headwater.ok("topic", "delete", "--yes", name, "--output", "json").json == {
        "name": name,
        "result": "deleted",
    }
    assert name not in [row["name"] for row in headwater.ok("topic", "list", "--output", "json").json]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["topic", "create", "{name}"], 1, "TOPIC_ALREADY_EXISTS"),
        (["topic", "create", "no spaces"], 1, "INVALID_TOPIC_EXCEPTION"),
        (["topic", "create", "{fresh}", "--config", "no.such.config=1"], 1, "INVALID_CONFIG"),
        (["topic", "create", "{fresh}", "--config", "retention.ms"], 1, "NAME=VALUE"),
        (["topic", "create", "{fresh}", "--config", "a=1", "--config", "a=2"], 1, "twice"),
        (["topic", "create", "{fresh}", "--partitions", "0"], 1, "--partitions"),
        (["topic", "create", "{fresh}", "--output", "yaml"], 1, "--output"),
        (["topic", "alter", "{name}"], 1, "nothing to change"),
        (["topic", "alter", "{name}", "--partitions", "1"], 1, "INVALID_PARTITIONS"),
        (["topic", "alter", "{name}", "--config", "retention.ms=soon"], 1, "INVALID_CONFIG"),
        (["topic", "describe", "{fresh}"], 2, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["topic", "delete", "--yes", "{fresh}"], 2, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["consume", "{fresh}"], 2, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["consume", "{name}", "--partition", "3"], 1, "no partition 3"),
        (["consume", "{name}", "--from", "yesterday"], 1, "--from"),
        (["consume", "{name}", "--count", "0"], 1, "--count"),
        (["produce", "{fresh}", "--no-create"], 2, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["produce", "{name}", "--partition", "3"], 1, "no partition 3"),
        (["produce", "{name}", "--file", "/no/such/file"], 1, "/no/such/file"),
        (["produce", "{name}", "--header", "=x"], 1, "--header"),
        (["produce", "{name}", "--key-separator", ""], 1, "--key-separator"),
        (["produce", "{name}", "--key-separator", ":"], 1, "line 1"),
        (["produce", "{name}", "--compression", "rar"], 1, "--compression"),
        (["topic", "list", "--no-such-option"], 1, "--no-such-option"),
    ],
)
def test_failures_are_one_line_and_an_exit_code(
    headwater: Commands, name: str, arguments: list[str], code: int, says: str
) -> None:
    filled = [argument.format(name=name, fresh=fresh()) for argument in arguments]
    result = headwater(*filled, stdin=b"a line\n")
    assert (result.code, result.out) == (code, b"")
    (line,) = result.err.splitlines()
    assert line.startswith("headwater: ")
    assert says in line


def test_a_broker_that_is_not_there_and_an_address_that_is_none(headwater: Commands) -> None:
    address = f"127.0.0.1:{free_port()}"
    refused = headwater("topic", "list", bootstrap=address)
    assert (refused.code, address in refused.err) == (2, True)
    assert headwater("topic", "list", bootstrap="nowhere").code == 1


# --- produce and consume -------------------------------------------------------------------------------


def test_lines_become_records_and_lines_again(headwater: Commands, name: str) -> None:
    lines = b"".join(b"%d\n" % i for i in range(1000))
    assert headwater.ok("produce", name, stdin=lines).out == f"1000 records written to {name}\n".encode()
    read = headwater.ok("consume", name).out
    assert sorted(read.splitlines()) == sorted(lines.splitlines())


def test_a_file_without_a_last_line_feed(headwater: Commands, name: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\n\nthree\r\nfour")
    options = ["--file", str(file), "--partition", "1", "--compression", "zstd", "--output", "json"]
    assert headwater.ok("produce", name, *options).json == {"topic": name, "records": 4, "bytes": 16}
    assert headwater.ok("consume", name, "--partition", "1").out == b"one\n\nthree\r\nfour\n"


def test_no_input_is_no_record(headwater: Commands, name: str) -> None:
    assert headwater.ok("produce", name, "--output", "json").json["records"] == 0
    assert headwater.ok("consume", name).out == b""


def test_keys_and_headers_as_json(headwater: Commands, name: str) -> None:
    options = ["--key-separator", "::", "--header", "who=me", "--header", "who=Zoë", "--partition", "0"]
    headwater.ok("produce", name, *options, stdin=b"k::v::w\n::no key\n\xff::\xfe\xfd\n")
    first, second, third = headwater.ok("consume", name, "--output", "json").lines
    headers = [{"name": "who", "value": "me"}, {"name": "who", "value": "Zoë"}]
    assert {**first, "timestamp": 0} == {
        "topic": name,
        "partition": 0,
        "offset": 0,
        "timestamp": 0,
        "key": "k",
        "value": "v::w",
        "headers": headers,
    }
    assert (second["key"], second["value"], "key_encoding" in second) == ("", "no key", False)
    assert third["key_encoding"] == third["value_encoding"] == "base64"
    assert (base64.b64decode(third["key"]), base64.b64decode(third["value"])) == (b"\xff", b"\xfe\xfd")
    assert headwater.ok("consume", name, "--key-separator", "=").out == b"k=v::w\n=no key\n\xff=\xfe\xfd\n"


def test_lines_before_a_bad_one_are_written(headwater: Commands, name: str) -> None:
    result = headwater("produce", name, "--key-separator", ":", stdin=b"a:1\nb:2\nnothing\nc:3\n")
    assert (result.code, "line 3" in result.err) == (1, True)
    assert sorted(headwater.ok("consume", name).out.split()) == [b"1", b"2"]


def test_a_topic_is_created_on_the_way(headwater: Commands) -> None:
    name = fresh()
    headwater.ok("produce", name, stdin=b"x\n")
    assert headwater.ok("consume", name).out == b"x\n"
    headwater.ok("topic", "delete", "--yes", name)


def test_where_reading_starts_and_stops(headwater: Commands, name: str) -> None:
    headwater.ok("produce", name, "--partition", "0", stdin=b"".join(b"%d\n" % i for i in range(10)))
    time = headwater.ok("consume", name, "--output", "json").lines[0]["timestamp"]

    def read(*options: str) -> list[int]:
        return [int(line) for line in headwater.ok("consume", name, *options).out.split()]

    assert read("--from", "beginning", "--count", "3") == [0, 1, 2]
    assert read("--from", "end") == []
    assert read("--from", "@0") == read("--from", "1970-01-01") == read("--from", f"@{time}") == list(range(10))
    assert read("--from", "2100-01-01T00:00:00Z") == []
    assert read("--from", "7", "--partition", "0") == [7, 8, 9]
    assert read("--partition", "1", "--partition", "2") == []
    outside = headwater("consume", name, "--from", "99", "--partition", "0")
    assert (outside.code, outside.out, "starting at 10" in outside.err) == (0, b"", True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_following_until_a_signal(headwater: Commands, name: str, how: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM, "consume", name, "--follow", "--bootstrap", headwater.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        for line in (b"one\n", b"two\n"):
            headwater.ok("produce", name, stdin=line)
            assert following.stdout.readline() == line
        following.send_signal(how)
        assert (following.wait(30), following.stderr.read()) == (130, b"")


def test_a_producer_waiting_for_input_can_be_interrupted(headwater: Commands, name: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "produce", name, "--bootstrap", headwater.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        assert producing.stderr is not None
        producing.stdin.write(b"a line\nand a half")
        producing.stdin.flush()
        assert headwater.ok("consume", name, "--follow", "--count", "1").out == b"a line\n"
        producing.send_signal(signal.SIGINT)
        assert (producing.wait(30), producing.stderr.read()) == (130, b"")


def test_whoever_reads_may_stop(headwater: Commands, name: str) -> None:
    headwater.ok("produce", name, stdin=b"a rather long line\n" * 20_000)
    command = [sys.executable, "-c", PROGRAM, "consume", name, "--bootstrap", headwater.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert reading.stdout.readline() == b"a rather long line\n"
        reading.stdout.close()
        assert (reading.stderr.read(), reading.wait(30)) == (b"", 0)


def test_help_does_not_load_the_protocol() -> None:
    script = "import sys; sys.argv = ['headwater', '--help']\n"
    script += PROGRAM.replace("sys.exit(common.call(app))", "code = common.call(app)")
    script += "\nheavy = {'kio', 'rich', 'cramjam', 'numba', 'numpy'} & set(sys.modules)"
    script += "\nsys.exit(str(heavy) if heavy else code)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "consume" in done.stdout


def test_a_command_without_its_subcommand_prints_help(app: typer.Typer, capsys: pytest.CaptureFixture[str]) -> None:
    assert common.call(app, ["topic"]) == 1
    assert "describe" in capsys.readouterr().err


# --- groups ----------------------------------------------------------------------------------------


@promise("H3")
def test_a_groups_offsets_are_set_told_and_forgotten(headwater: Commands) -> None:
    """`group` for a consumer that assigns its partitions itself."""
    name, of = f"g-{uuid.uuid4().hex}", f"t-{uuid.uuid4().hex}"
    assert headwater("topic", "create", of, "--partitions", "2").code == 0
    assert headwater("produce", of, "--key-separator", ":", stdin=b"a:1\na:2\na:3\n").code == 0
    assert headwater("group", "describe", name).code != 0
    told = headwater("group", "reset", name, "--topic", of, "--to", "end", "--dry-run", "--output", "json").json
    assert sorted(row["offset"] for row in told) == [0, 3]
    assert headwater("group", "describe", name).code != 0
    assert headwater("group", "reset", name, "--topic", of, "--to", "1").code == 0
    described = headwater("group", "describe", name, "--output", "json").json
    assert (described["state"], described["members"]) == ("Empty", [])
    assert sorted((o["committed"], o["lag"]) for o in described["offsets"]) == [(0, 0), (1, 2)]
    assert name in headwater("group", "describe", name).out.decode()
    assert name in {row["name"] for row in headwater("group", "list", "--output", "json").json}
    assert headwater("group", "delete-offsets", name, "--topic", of).code == 0
    assert headwater("group", "describe", name, "--output", "json").json["offsets"] == []
    assert headwater("group", "delete-offsets", name, "--topic", of).code != 0
    assert headwater("group", "delete", name).code == 0
    assert "no such group" in headwater("group", "delete", name).err


def test_a_groups_offsets_are_not_set_to_nonsense(headwater: Commands) -> None:
    of = f"t-{uuid.uuid4().hex}"
    headwater("topic", "create", of)
    result = headwater("group", "reset", "g", "--topic", of, "--to", "somewhere")
    assert result.code == common.exit_code(ConfigError(""))
    assert "--to" in result.err


# --- transactions ----------------------------------------------------------------------------------


async def begin(bootstrap: str, id: str, topic: str, partitions: list[int]) -> int:
    """Open a transaction, as a producer of the first generation does; returns its producer id."""
    async with Client(bootstrap) as client:
        connection = await client.coordinator(id, TRANSACTION_KEY)
        made = await connection.request(
            22, transactional_id=id, transaction_timeout=600_000, producer_id=-1, producer_epoch=-1,
            enable2_pc=False, keep_prepared_txn=False,
        )  # fmt: skip
        joined = await connection.request(
            24,
            newest=3,
            v3_and_below_transactional_id=id,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[{"name": topic, "partitions": partitions}],
        )
        for result in joined.results_by_topic_v3_and_below[0].results_by_partition:
            assert result.partition_error_code == 0
        return int(made.producer_id)


@promise("K12")
def test_transactions_are_listed_described_and_aborted(headwater: Commands, name: str) -> None:
    """On a real server. An abort ends the transaction and fences its producer."""
    id = fresh()
    producer = asyncio.run(begin(headwater.bootstrap, id, name, [2, 0]))
    rows = headwater.ok("txn", "list", "--state", "Ongoing", "--output", "json").json
    [row] = [row for row in rows if row["id"] == id]
    assert (row["producer"], row["epoch"], row["timeout_ms"]) == (producer, 0, 600_000)
    assert row["partitions"] == [{"topic": name, "partition": 0}, {"topic": name, "partition": 2}]
    assert headwater.ok("txn", "list", "--older-than", "7d", "--output", "json").json == []
    assert f"transactional id {id}, Ongoing" in headwater.ok("txn", "describe", id).out.decode()
    assert (headwater("txn", "abort", id).code, headwater("txn", "abort", fresh(), "--yes").code) == (1, 2)
    assert headwater.ok("txn", "abort", id, "--yes").out == f"transaction {id} aborted\n".encode()
    after = headwater.ok("txn", "describe", id, "--output", "json").json
    assert (after["state"], after["producer"], after["epoch"], after["partitions"]) == ("Empty", producer, 1, [])
    described = headwater.ok("topic", "describe", name, "--output", "json").json
    assert [p["end"] for p in described["partitions"]] == [1, 0, 1], "markers take an offset each"
    assert "no open transaction" in headwater("txn", "abort", id, "--yes").err
