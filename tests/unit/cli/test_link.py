"""`headwater link` on a cluster's own ledger: a link's whole life, for people and for programs, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
import typer

from headwater.app.session import ledger_session
from headwater.cli import common, link
from headwater.clock import SystemChance
from headwater.replica.levels import settle_level
from headwater.replica.link_changes import LinkChanges
from headwater.replica.links import Linking
from headwater.replica.topics import Topics
from headwater.settings.settings import Settings
from headwater.state.commands.links import LinkSpec

PROMISES = ("H3", "N1")

SECRET = "correct horse"
FIRST = LinkSpec("first", ("127.0.0.1:9192",), {}, ("other",), (), (), {}, False)


class Commands:
    """Runs `headwater link …` in this process."""

    def __init__(self, data: Path) -> None:
        self.settings = Settings(data=str(data))
        self._app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
        self._app.callback()(lambda: None)
        link.register(self._app)
        asyncio.run(self._begin())

    async def _begin(self) -> None:
        """A cluster of the newest level, with a link."""
        async with ledger_session(self.settings, member=True, create=True) as here:
            await settle_level(here.cluster, here.domains)
            await LinkChanges.of(here.domains, self.settings.links).create(FIRST)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = common.call(self._app, ["link", *arguments, "--data", self.settings.data])
            out.flush()
        return code, out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]

    def ok(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))

    def copy(self, name: str, topic: str) -> None:
        """Let a link copy a topic."""

        async def main() -> None:
            async with ledger_session(self.settings, member=True, create=True) as here:
                chance = SystemChance()
                topics = Topics(here.cluster, here.domains, chance)
                linking = Linking(here.cluster, here.domains, topics, chance)
                await linking.create_topic(name, topic, topic, uuid.uuid4(), 2, {})

        asyncio.run(main())


@pytest.fixture(scope="module")
def headwater(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("links") / "data")


def test_the_life_of_a_link(headwater: Commands, tmp_path: Path) -> None:
    options = ["--topics", "orders, payments", "--topics", "more", "--pattern", "shop[.].{1,3}", "--groups", "shop-.*"]
    security = ["security.protocol=SASL_PLAINTEXT", "sasl.username=ann", "sasl.password.env=PASSWORD"]
    for pair in security:
        options += ["--security", pair]
    options += ["--source", "127.0.0.1:9192,[::1]:9193", "--option", "configs=true"]
    code, _, words = headwater("create", "old", *options)
    assert code == 2 and "PASSWORD, which is not in the setting links.secret_variables" in words
    listed = tmp_path / "settings.toml"
    listed.write_text('links.secret_variables = ["PASSWORD"]')
    assert headwater.ok("create", "old", *options, "--config", str(listed)) == "link old created\n"
    facts = headwater.json("describe", "old")
    assert facts["source"] == ["127.0.0.1:9192", "[::1]:9193"]
    assert facts["topics"] == ["orders", "payments", "more"]
    assert (facts["patterns"], facts["groups"]) == (["shop[.].{1,3}"], ["shop-.*"])
    assert facts["security"] == dict(pair.split("=") for pair in security)
    assert (facts["options"], facts["state"], facts["linked"]) == ({"configs": "true"}, "copying", [])
    headwater.copy("old", "orders")
    assert [line["name"] for line in headwater.json("list")] == ["first", "old"]
    assert headwater.ok("list").splitlines()[2].split() == ["old", "127.0.0.1:9192,[::1]:9193", "copying", "1", "0"]
    assert headwater.ok("pause", "old") == "link old paused\n"
    said = headwater.ok("describe", "old")
    assert said.startswith("link:        old, paused\n") and "sasl.password.env: PASSWORD" in said
    assert "\nnot linked:  more, payments\n" in said
    assert "\nreason:      process: no process copies links: start `headwater up`" in said
    assert said.splitlines()[-1].split()[:3] == ["orders", "copying", "2"]
    assert said.splitlines()[-1].split()[-1] == "-", "nobody has seen the source"
    headwater.ok("pause", "old", "--topic", "orders")
    assert headwater.json("describe", "old")["linked"][0]["state"] == "paused"
    headwater.ok("resume", "old", "--accept-gap")
    facts = headwater.json("describe", "old")
    assert (facts["state"], facts["linked"][0]["state"]) == ("copying", "copying")
    assert facts["options"] == {"configs": "true", "accept.gap": "true"}
    code, _, words = headwater("delete", "old")
    assert code == 2 and "promote or delete them first" in words
    code, _, words = headwater("promote", "old", "--topic", "orders", "--timeout", "0.2")
    assert code != 0 and "orders is promoting. A link process goes on with it" in words
    assert headwater.json("describe", "old")["linked"][0]["state"] == "promoting"
    forced = headwater.json("promote", "old", "--topic", "orders", "--force")
    assert forced == {"name": "old", "result": "promoted"}
    assert headwater.json("describe", "old")["linked"][0]["state"] == "promoted"
    headwater.ok("delete", "old")
    assert [line["name"] for line in headwater.json("list")] == ["first"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "new", "--source", "127.0.0.1:9192"], "at least one topic"),
        (["create", "new", "--source", "kafka", "--topics", "orders"], "HOST:PORT"),
        (["create", "new", "--source", "", "--topics", "orders"], "addresses"),
        (["create", "new", "--source", "k:1", "--pattern", "("], "regular expression"),
        (["create", "new", "--source", "k:1", "--topics", "a", "--security", f"sasl.password={SECRET}"], "secret"),
        (["create", "new", "--source", "k:1", "--topics", "a", "--security", "tls"], "NAME=VALUE"),
        (["create", "new", "--source", "k:1", "--topics", "a", "--option", "speed=1"], "not an option"),
        (["create", "first", "--source", "k:1", "--topics", "a"], "exists already"),
        (["describe", "none"], "no link 'none'"),
        (["pause", "none"], "no link 'none'"),
        (["resume", "first", "--topic", "none"], "no topic 'none'"),
    ],
)
def test_what_is_refused_changes_nothing(headwater: Commands, arguments: list[str], words: str) -> None:
    before = headwater.json("list")
    code, out, err = headwater(*arguments)
    missing = "none" in arguments
    assert (code, out) == (2 if missing else 1, "") and words in err and SECRET not in err
    assert headwater.json("list") == before


def test_a_new_link_may_wait(headwater: Commands) -> None:
    headwater.ok("create", "later", "--source", "127.0.0.1:9192", "--topics", "later", "--paused")
    assert headwater.json("describe", "later")["state"] == "paused"
    headwater.ok("delete", "later")
