"""`headwater ingest`: what its options mean. The server itself is not started here."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import typer

from headwater.cli import common
from headwater.cli import ingest as command
from headwater.settings.settings import Settings
from headwater.state.commands.links import LinkSpec


class Started:
    """What a command would have started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[tuple[Settings, LinkSpec]] = []
        self._app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
        self._app.callback()(lambda: None)
        command.register(self._app)

        async def serve(settings: Settings, spec: LinkSpec) -> None:
            self.runs.append((settings, spec))

        monkeypatch.setattr(command, "serve", serve)

    def __call__(self, *arguments: str) -> tuple[int, str]:
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            return common.call(self._app, ["ingest", *arguments]), err.getvalue()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    return Started(monkeypatch)


def test_little_has_to_be_said(started: Started) -> None:
    assert started("--source", "127.0.0.1:9092", "--topics", "orders,payments") == (0, "")
    [(settings, spec)] = started.runs
    assert (spec.name, spec.topics, spec.bootstrap) == ("ingest", ("orders", "payments"), ("127.0.0.1:9092",))
    assert settings.kafka == "127.0.0.1:0", "the source may have the usual port"
    assert settings.lake.enabled and settings.gateway.enabled


def test_everything_can_be_said(started: Started, tmp_path: Path) -> None:
    words = ["--source", "k:1", "--pattern", "a.*", "--data", str(tmp_path), "--objects", "s3://bucket/tables"]
    words += ["--catalog", "prod.type=rest", "--catalog", "prod.s3.endpoint=http://127.0.0.1:9000", "--freshness", "5s"]
    words += ["--name", "old", "--security", "security.protocol=SSL", "--option", "accept.gap=true"]
    assert started(*words, "--gateway-http", "127.0.0.1:8181") == (0, "")
    [(settings, spec)] = started.runs
    assert settings.lake.catalogs == {"prod": {"type": "rest", "s3.endpoint": "http://127.0.0.1:9000"}}
    assert (settings.objects_url, settings.lake.freshness_ms) == ("s3://bucket/tables", 5_000)
    assert settings.gateway.http == "127.0.0.1:8181"
    assert (spec.name, spec.patterns, spec.options) == ("old", ("a.*",), {"accept.gap": "true"})


def test_links_may_name_the_files_and_variables_of_this_link_and_no_others(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--security", "security.protocol=SASL_SSL", "--security", "sasl.username=ann"]
    words += ["--security", "sasl.password.env=PASSWORD", "--security", "ssl.ca.location=ca.pem"]
    assert started("--source", "k:1", "--topics", "a", *words) == (0, "")
    [(settings, spec)] = started.runs
    assert spec.security["ssl.ca.location"] == str(tmp_path / "ca.pem")
    assert settings.links.secret_directories == (str(tmp_path / "ca.pem"),)
    assert settings.links.secret_variables == ("PASSWORD",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--source", "k:1"], "at least one topic"),
        (["--source", "k", "--topics", "a"], "HOST:PORT"),
        (["--topics", "a"], "--source"),
        (["--source", "k:1", "--topics", "a", "--catalog", "prod=rest"], "NAME.PROPERTY=VALUE"),
        (["--source", "k:1", "--topics", "a", "--freshness", "soon"], "not a duration"),
    ],
)
def test_nothing_is_started_for_what_makes_no_sense(started: Started, arguments: list[str], words: str) -> None:
    code, said = started(*arguments)
    assert code == 1 and words in said
    assert not started.runs
