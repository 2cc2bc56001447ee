"""`headwater schema` on a cluster's own ledger: registered, shown, checked, deleted; modes and levels."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import typer

from headwater.app.session import ledger_session
from headwater.cli import common, schema
from headwater.replica.levels import settle_level
from headwater.settings.settings import Settings
from tests.support.promise import promise

PROMISES = ("T6",)


class Commands:
    """Runs `headwater schema …` in this process."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.settings = Settings(data=str(data))
        self._app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
        self._app.callback()(lambda: None)
        schema.register(self._app)
        asyncio.run(self._begin())

    async def _begin(self) -> None:
        async with ledger_session(self.settings, member=True, create=True) as here:
            await settle_level(here.cluster, here.domains)

    def file(self, text: str, name: str = "s.avsc") -> str:
        path = self.data / name
        path.write_text(text)
        return str(path)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = common.call(self._app, ["schema", *arguments, "--data", self.settings.data])
            out.flush()
        return code, out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]

    def ok(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert code == 0 and err in ("", "there are no subjects\n")
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


@promise("T6")
def test_a_schemas_life(commands: Commands) -> None:
    """For people and for programs."""
    assert commands.ok("list") == ""
    assert commands.ok("register", "orders-value", commands.file('"int"')) == "subject orders-value, version 1: id 1\n"
    assert commands.ok("check", "orders-value", commands.file('"long"')) == "compatible\n"
    code, out, _ = commands("check", "orders-value", commands.file('"string"'))
    assert (code, bool(out.strip())) == (1, True)
    code, out, err = commands("register", "orders-value", commands.file('"string"'))
    assert (code != 0, out) == (True, "") and "incompatible" in err
    made = commands.json("register", "orders-value", commands.file('"long"'))
    assert (made["version"], made["id"]) == (2, 2)
    assert commands.ok("show", "orders-value") == '"long"\n'
    assert commands.ok("show", "orders-value", "--version", "1") == commands.ok("show", "--id", "1") == '"int"\n'
    told = commands.json("show", "orders-value")
    assert (told["kind"], told["version"], told["id"], told["references"]) == ("AVRO", 2, 2, [])
    [row] = commands.json("list")
    assert (row["subject"], row["versions"], row["compatibility"]) == ("orders-value", [1, 2], "BACKWARD")
    assert "orders-value" in commands.ok("list")
    assert commands.json("delete", "orders-value", "--version", "1")["deleted"] == [1]
    assert commands.ok("delete", "orders-value") == "subject orders-value: deleted 2\n"
    assert (commands.json("list"), commands.json("list", "--deleted")[0]["versions"]) == ([], [1, 2])
    assert commands.json("delete", "orders-value", "--permanent")["deleted"] == [1, 2]
    assert commands("show", "--id", "1")[0] != 0


@promise("T6")
def test_kinds_and_references(commands: Commands) -> None:
    """The kind follows from the name of the file; references are named."""
    commands.ok("register", "base", commands.file('{"type": "record", "name": "A", "fields": []}'))
    user = commands.file('{"type": "record", "name": "U", "fields": [{"name": "a", "type": "A"}]}')
    assert commands("register", "user", user)[0] != 0
    assert commands.json("register", "user", user, "--reference", "A=base:1")["id"] == 2
    assert commands.json("show", "user")["references"] == [{"name": "A", "subject": "base", "version": 1}]
    assert commands.json("register", "user2", user, "--reference", "A=base")["id"] == 2
    commands.ok("register", "json", commands.file('{"type": "object"}', "s.json"))
    assert commands.json("show", "json")["kind"] == "JSON"
    for wrong in ("A", "=base", "A="):
        assert commands("register", "user", user, "--reference", wrong)[0] != 0


@promise("T6")
def test_modes_and_levels(commands: Commands) -> None:
    """Global, and of a subject."""
    assert (commands.ok("mode"), commands.ok("compat")) == ("READWRITE\n", "BACKWARD\n")
    assert commands.ok("compat", "s", "--set", "full") == "compatibility s is FULL\n"
    assert commands.json("compat", "s") == {"subject": "s", "compatibility": "FULL"}
    assert commands.ok("compat", "s", "--set", "default") == "compatibility s is BACKWARD\n"
    assert commands.json("mode", "--set", "READONLY") == {"subject": None, "mode": "READONLY"}
    code, _, err = commands("register", "s", commands.file('"int"'))
    assert code != 0 and "read-only" in err
    assert commands.ok("mode", "--set", "default") == "mode of all subjects is READWRITE\n"
    for wrong in (("mode", "--set", "SOME"), ("compat", "--set", "SOME"), ("show",), ("register", "s", "/none")):
        assert commands(*wrong)[0] != 0
