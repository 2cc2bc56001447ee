"""The wrong turns of a newcomer. Each ends in one sentence that says what to do, and nothing is created or deleted."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer.core
import typer.main

from harness.headwater import Headwater
from harness.patience import eventually
from harness.ports import free_port
from harness.process import headwater
from headwater.cli import common, main
from headwater.cli.errors import INPUT, OK, REFUSED
from headwater.version import __version__

PROMISES = ("H3",)
MAY_CREATE = {"up", "broker", "compactor", "gateway", "link run", "ingest", "user add"}
"""Commands that may create a cluster: servers, and the first user of a cluster that nobody can log in to yet."""
MARKS = {"ledger.db-mark", "objects/meta/v1/mark"}
"""What a process writes soon after its start."""
GIVEN = {
    "link create": ["name", "--source", "127.0.0.1:1", "--topics", "orders"],
    "schema show": ["subject"],
    "table changes": ["orders", "--from", "1"],
}
"""Arguments of commands that check them before anything else. The others get the name of a file for each."""


def listing(top: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a directory: its mode and its content."""
    return {
        str(path.relative_to(top)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in (top, *top.rglob("*"))
    }


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], typer.core.TyperCommand]]:
    """All commands of the tree, with their names."""
    if isinstance(command, typer.core.TyperGroup):
        for name, below in command.commands.items():
            yield from leaves(below, (*path, name))
    else:
        yield path, command


APP = typer.main.get_command(main.commands())
COMMANDS = {" ".join(path): command for path, command in leaves(APP)}
READERS = [name for name, c in COMMANDS.items() if name not in MAY_CREATE and any("--data" in p.opts for p in c.params)]


def arguments(command: typer.core.TyperCommand, file: Path) -> list[str]:
    """Something for everything that the command must be given."""
    given = []
    for parameter in command.params:
        if parameter.required:
            option = [] if isinstance(parameter, typer.core.TyperArgument) else [parameter.opts[0]]
            given += [*option, str(file)]
    return given


def test_no_command_is_forgotten() -> None:
    assert set(COMMANDS) >= MAY_CREATE
    assert {"doctor", "table list", "schema list", "link create", "dlq replay", "cluster describe"} <= set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_a_wrong_directory(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also for commands that would write: only `headwater up` and those that it stands for create a cluster."""
    file = tmp_path / "given.avsc"
    file.write_text('{"type": "string"}')
    for place in ("missing", "empty", "foreign"):
        data = tmp_path / place
        if place != "missing":
            data.mkdir()
        if place == "foreign":
            (data / "notes.txt").write_text("not of Headwater")
        before = listing(tmp_path)
        given = GIVEN.get(name) or arguments(COMMANDS[name], file)
        words = [*name.split(), *given, "--data", str(data)]
        code = common.call(APP, words)
        out, err = capfd.readouterr()
        assert (code, out) == (INPUT, ""), err
        assert err.startswith("headwater: no cluster here: ") and "--data" in err and err.count("\n") == 1
        assert listing(tmp_path) == before


def test_two_of_one_directory(tmp_path: Path) -> None:
    """The second one is refused at once, and the first one goes on. A dead owner refuses nobody."""
    with Headwater(tmp_path / "first") as first:
        eventually(lambda: set(listing(first.data)) >= MARKS, "the first one has marked how far its ledger came")
        before = set(listing(first.data))
        free = f"127.0.0.1:{free_port()}"
        for command in ("up", "broker"):
            done = headwater(command, "--data", str(first.data), "--kafka", free, "--http", free)
            assert first.process is not None
            assert done.returncode == INPUT and done.stdout == ""
            assert (done.stderr.count("\n") == 1 and "--data" in done.stderr) or "--node" in done.stderr
            for fact in (f"process {first.process.pid} on {socket.gethostname()}", first.bootstrap, first.http):
                assert fact in done.stderr
        assert set(listing(first.data)) == before
        headwater("topic", "list", "--bootstrap", first.bootstrap).check_returncode()
        first.kill_all()
        first.start()


def test_a_gateway_that_is_down(tmp_path: Path) -> None:
    """The command says so at once. The variable that names the gateway disturbs no server or reader."""
    gateway = {"HEADWATER_GATEWAY_URL": f"http://127.0.0.1:{free_port()}"}
    done = headwater("sql", "SELECT 1", more=gateway)
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert done.stderr.startswith(f"headwater: no gateway answers at {gateway['HEADWATER_GATEWAY_URL']}: ")
    assert "headwater up" in done.stderr and done.stderr.count("\n") == 1
    done = headwater("doctor", "--data", str(tmp_path / "data"), more=gateway)
    assert done.returncode == INPUT and "no cluster here" in done.stderr
    done = headwater("doctor", "--data", str(tmp_path / "data"), more={"HEADWATER_GATEWAY_HTTP": ""})
    assert done.returncode == INPUT and "HEADWATER_GATEWAY__HTTP" in done.stderr


def test_what_would_be_lost_or_useless(tmp_path: Path) -> None:
    """A topic is deleted only by who says so. Configs without an effect, and brokers that are not there, are told."""
    with Headwater(tmp_path / "first") as server:
        at = ("--bootstrap", server.bootstrap)
        headwater("topic", "create", "orders", *at).check_returncode()
        for words, said in {
            ("topic", "delete", "orders"): "say so with --yes",
            ("topic", "create", "x", "--config", "headwater.dlq.topic=missing"): "create it first",
            ("topic", "alter", "orders", "--config", "headwater.table.flatten=true"): "set headwater.value.schema",
        }.items():
            done = headwater(*words, *at)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (INPUT, "", 1)
            assert said in done.stderr
        listed = headwater("topic", "list", *at, "--output", "json").stdout
        assert [topic["name"] for topic in json.loads(listed)] == ["orders"]
        headwater("topic", "delete", "orders", "--yes", *at).check_returncode()
    done = headwater("produce", "orders", "--file", str(tmp_path / "first" / "settings.toml"), *at, timeout=25)
    assert done.returncode == REFUSED and "Connection refused" in done.stderr


def test_missing_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Not a traceback, wherever the file or directory is needed."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(tmp_path / "data" / "ledger.db.lock"))

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ledger.db").write_bytes(b"SQLite format 3\0")
    monkeypatch.setattr("headwater.ledger.sqlite.ledger.SqliteLedger.__init__", refused)
    for words in (["doctor"], ["table", "list"], ["compactor"]):
        assert common.call(APP, [*words, "--data", str(tmp_path / "data")]) == INPUT
        assert capfd.readouterr().err == f"headwater: {tmp_path}/data/ledger.db.lock: Permission denied\n"


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["-h"], ["topic", "-h"], ["table", "settle", "--help"]])
def test_what_is_typed_first(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert common.call(APP, words) == OK
    out, err = capfd.readouterr()
    assert (__version__ if words[0] in ("--version", "-V") else "Usage: ") in out and err == ""


def test_shell_completion() -> None:
    done = headwater(more={"_HEADWATER_COMPLETE": "complete_bash", "COMP_WORDS": "headwater doc", "COMP_CWORD": "1"})
    assert done.stdout.split() == ["doctor"]


def test_what_a_broker_refuses(tmp_path: Path) -> None:
    """One sentence that has the name once, an exit code with one meaning, and no change."""
    gateway = {"HEADWATER_GATEWAY_URL": "http://127.0.0.1:1"}
    with Headwater(tmp_path / "first", variables=gateway) as server:
        own, at = ("--config", str(server.config)), ("--bootstrap", server.bootstrap)
        headwater("topic", "create", "orders", *at).check_returncode()
        for words, code, name in (
            (("topic", "create", "orders", *at), INPUT, "orders"),
            (("topic", "create", "bad name", *at), INPUT, "bad name"),
            (("topic", "create", "x-1", "--config", "nonsense=1", *at), INPUT, "nonsense"),
            (("topic", "describe", "missing", *at), REFUSED, "missing"),
            (("topic", "delete", "missing", "--yes", *at), REFUSED, "missing"),
            (("consume", "missing", *at), REFUSED, "missing"),
            (("group", "describe", "missing", *at), REFUSED, "missing"),
            (("table", "describe", "missing", *own), REFUSED, "missing"),
            (("schema", "show", "missing", *own), REFUSED, "missing"),
            (("link", "describe", "missing", *own), REFUSED, "missing"),
        ):
            done = headwater(*words)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), (words, done.stderr)
            assert done.stderr.count(name) == 1, done.stderr
        listed = headwater("topic", "list", *at, "--output", "json").stdout
        assert [topic["name"] for topic in json.loads(listed)] == ["orders"]


def test_why_a_link_copies_nothing(tmp_path: Path) -> None:
    with Headwater(tmp_path / "first") as server:
        own, source = ("--config", str(server.config)), f"127.0.0.1:{free_port()}"
        headwater("link", "create", "old", "--source", source, "--topics", "orders", *own).check_returncode()

        def described() -> bool:
            lines = headwater("link", "describe", "old", *own).stdout.splitlines()
            return f"reason:      source: no connection to {source}: Connection refused" in lines

        eventually(described, "the link says why")


def test_sql_before_anything_is_settled(tmp_path: Path) -> None:
    """Columns of a schema are there; a name without its place is offered with it; the shell knows words of others."""
    # On a busy machine an engine that steps back behind others takes minutes to start.
    with Headwater(tmp_path / "first", gateway=True, settings="[sql]\nniceness = 0\n") as server:
        own, at = ("--config", str(server.config)), ("--gateway", server.gateway_url)
        schema = tmp_path / "order.avsc"
        schema.write_text('{"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "long"}]}')
        headwater("schema", "register", "orders-value", str(schema), *own).check_returncode()
        headwater(
            "topic", "create", "orders", "--config", "headwater.value.schema=auto", "--bootstrap", server.bootstrap
        ).check_returncode()
        done = headwater("sql", "SELECT value_data.amount FROM orders", *at)
        assert (done.returncode, done.stderr) == (OK, ""), done.stderr
        for statement, said in {
            "SELECT amount FROM orders": "did you mean value_data.amount?",
            "SELECT * FROM oders": 'did you mean "orders"?',
            "SELECT\n  1 +": "line 2, column ",
        }.items():
            done = headwater("sql", statement, *at)
            assert (done.returncode, done.stdout) == (INPUT, "") and said in done.stderr, done.stderr
            assert done.stderr.count("\n") == 1
        for typed, shown in {"exit\n": "", "quit;\n": "", "help\nexit\n": "\\d TOPIC", "\\d\n": "orders |"}.items():
            done = headwater("sql", *at, given=typed)
            assert (done.returncode, done.stderr) == (OK, "") and shown in done.stdout


def test_what_is_empty_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On standard error, so that a program reads no lines. The port of health pages leads on."""
    with Headwater(tmp_path / "first", gateway=True) as server:
        own, at = ("--config", str(server.config)), ("--bootstrap", server.bootstrap)
        for words, said in {
            ("topic", "list", *at): "there are no topics",
            ("group", "list", *at): "there are no groups",
            ("user", "list", *at): "there are no users",
            ("txn", "list", *at): "there are no transactions",
            ("table", "list", *own): "there are no topics",
            ("schema", "list", *own): "there are no subjects",
            ("link", "list", *own): "there are no links",
        }.items():
            assert common.call(APP, words) == OK
            assert capfd.readouterr() == ("", f"{said}\n")
        described = headwater("cluster", "describe", *own).stdout
        assert "gateway" in described
        status, page = server.page("/")
        assert status == 200 and all(path in page for path in ("/health", "/metrics", "/docs", server.gateway))
        assert server.page("/nothing")[0] == 404
        asked = urllib.request.Request(f"{server.gateway_url}/", headers={"Accept": "text/html"})
        with urllib.request.urlopen(asked) as answer:
            assert 'href="docs"' in answer.read().decode()
