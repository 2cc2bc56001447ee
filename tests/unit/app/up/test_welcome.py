"""What `headwater up` prints once it serves."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from harness.tools import ROOT
from headwater.app.up.welcome import Serving, commands, program_name, text

PLAIN = Serving(
    kafka="127.0.0.1:9092",
    pages="http://127.0.0.1:8080/health",
    gateway="http://127.0.0.1:8081",
    catalog="http://127.0.0.1:8081/iceberg",
    data="/var/headwater",
)


def test_addresses_directory_and_three_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/headwater"])
    monkeypatch.setenv("PATH", "/nowhere")
    shown = text(PLAIN)
    for place in (PLAIN.kafka, PLAIN.pages, PLAIN.gateway, PLAIN.catalog, PLAIN.data):
        assert f" {place}\n" in shown
    assert "Flight" not in shown and "pip install" not in shown
    assert shown.splitlines()[-3:] == [f"    {line}" for line in commands(PLAIN)]
    assert commands(PLAIN) == [
        "/usr/bin/headwater topic create hello",
        "seq 1000 | /usr/bin/headwater produce hello",
        '/usr/bin/headwater sql "SELECT count(*) FROM hello"',
    ]


def test_the_tour_shows_the_same() -> None:
    serving = dataclasses.replace(PLAIN, data="/…/headwater-data")
    _, *places = text(serving).split("\n\n")[0].splitlines()
    assert len(places) == 5 and "\n".join(places) in (ROOT / "docs/start/tour.md").read_text()


def test_commands_name_addresses_that_are_not_the_usual_ones() -> None:
    made, filled, asked = commands(Serving(kafka="127.0.0.1:4000", pages="", gateway="http://127.0.0.1:4001", data=""))
    assert made.endswith("topic create hello --bootstrap 127.0.0.1:4000")
    assert filled.endswith("produce hello --bootstrap 127.0.0.1:4000")
    assert asked.endswith('FROM hello" --gateway http://127.0.0.1:4001')


def test_without_sql_or_a_gateway_records_are_consumed() -> None:
    for serving in (
        Serving(kafka=PLAIN.kafka, pages="", data=""),
        Serving(kafka=PLAIN.kafka, pages="", gateway=PLAIN.gateway, data="", lacks=["sql", "lake"]),
    ):
        assert commands(serving)[-1].endswith("consume hello --count 5")
    assert "pip install 'headwater[lake]'" in text(serving) and "HTTP and SQL" not in text(serving)


def test_a_cluster_with_log_in_suggests_no_command_that_would_be_refused() -> None:
    assert "topic create" not in text(Serving(kafka=PLAIN.kafka, pages="", data="", secured=True))


def test_the_program_is_named_as_it_is_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "headwater"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program_name() == "bin/headwater"
    monkeypatch.setenv("PATH", str(program.parent))
    assert program_name() == "headwater"
    monkeypatch.setattr(sys, "argv", ["/some/__main__.py"])
    assert program_name().endswith(" -m headwater")
