"""The commands of the README and of the tour run as they are printed there, on a server as `make run` starts it."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duckdb_extensions import import_extension

from harness.headwater import Headwater
from harness.ports import free_ports
from harness.process import environment

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 300
SHIM = """#!/bin/sh
# Where `make run` would have installed the command. Commands for servers get the addresses of this test's server.
case "$1" in
    topic | produce | consume) set -- "$@" --bootstrap {bootstrap} ;;
    sql) set -- "$@" --gateway {gateway} ;;
esac
exec {python} -m headwater "$@"
"""
RUN = re.compile(r"^(?:seq [\d ]+\| )?\.venv/bin/headwater ")
"""A command that a test runs."""
PROMISES = ("O9",)
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def commands(page: str) -> list[str]:
    """The commands of a page, each in one line."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    return [line.strip() for line in re.findall(r"^    (\S.*)$", text, re.M)]


def shown(page: str) -> list[str]:
    """What the first output on a page has, line by line, the picture at the top apart."""
    blocks = re.findall(r"^```text\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    return [line.rstrip() for line in blocks[1].splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headwater]:
    """`headwater up` with a compactor and a gateway, and a directory that looks as after `make run`."""
    directory = tmp_path_factory.mktemp("readme")
    with Headwater(directory, lake=True, data=directory / "headwater-data") as running:
        shim = directory / ".venv" / "bin" / "headwater"
        shim.parent.mkdir(parents=True)
        shim.write_text(SHIM.format(bootstrap=running.bootstrap, gateway=running.gateway_url, python=sys.executable))
        shim.chmod(0o755)
        yield running


def run(server: Headwater, command: str) -> str:
    """What a command prints. It must succeed."""
    command = command.replace("http://127.0.0.1:8081", server.gateway_url)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        cwd=server.directory,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_every_command_of_the_readme_is_run() -> None:
    """`make test` is what runs this test."""
    found = commands("README.md")
    rest = [command for command in found if not RUN.match(command)]
    assert len(found) - len(rest) >= 4
    in_text = set(re.findall(r"`(make [a-z-]+)`", (ROOT / "README.md").read_text()))
    assert rest == ["make run"] and in_text == {"make test"}
    assert "\ntest: " in (ROOT / "Makefile").read_text()


def test_the_first_command_of_the_readme(tmp_path: Path) -> None:
    """`make run`, where everything is installed, prints what the page waits for. Ctrl-C ends it."""
    port = free_ports(3)
    kafka, pages, gateway = (f"127.0.0.1:{port + i}" for i in range(3))
    flags = f"--data {tmp_path / 'data'} --kafka {kafka} --http {pages} --gateway-http {gateway}"
    command = ["make", "--old-file=install", f"VENV={sys.prefix}", "run", f"ARGS={flags}"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        ) as running,
    ):
        assert running.stdout is not None
        try:
            assert any(line.startswith("headwater ready: ") for line in running.stdout)
            places = [line.split()[-1] for line in itertools.islice(running.stdout, 6) if line.strip()]
            assert places == [
                kafka,
                f"http://{gateway}",
                f"http://{gateway}/iceberg",
                f"http://{pages}/health",
                str(tmp_path / "data"),
            ]
        finally:
            os.killpg(running.pid, signal.SIGINT)
        running.stdout.read()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_the_sixty_seconds_of_the_readme(server: Headwater) -> None:
    """From nothing to a table and an answer, which is the one that the page shows."""
    printed = [run(server, command) for command in commands("README.md") if RUN.match(command)]
    assert printed[:2] == ["topic orders created\n", "100000 records written to orders\n"]
    assert "orders: " in printed[2]
    assert [line.rstrip() for line in printed[3].splitlines()] == shown("README.md")
    reading_as_the_page_of_tables_says(server)


def reading_as_the_page_of_tables_says(server: Headwater) -> None:
    """DuckDB's statements of `docs/guides/tables.md` read the table; its extensions come from wheels here."""
    found = [line for line in commands("docs/guides/tables.md") if line.startswith(("LOAD", "ATTACH", 'SELECT "'))]
    assert [line.split()[0] for line in found] == ["LOAD", "ATTACH", "SELECT"]
    for extension in ("httpfs", "avro", "iceberg"):
        import_extension(extension)
    with duckdb.connect() as connection:
        for statement in found[:-1]:
            connection.execute(statement.replace("http://127.0.0.1:8081", server.gateway_url))
        rows = connection.execute(found[-1]).fetchall()
    assert sum(count for _, count, _ in rows) == 100_000


def test_the_commands_of_the_tour(server: Headwater) -> None:
    """In a topic of its own. Those that start servers, and kcat, are left out."""
    left_out = ("make ", "kcat ", ".venv/bin/headwater up ")
    for command in commands("docs/start/tour.md"):
        if not command.startswith(left_out):
            printed = run(server, re.sub(r"\borders\b", "tours", command))
            assert printed and '"type":"/problems/' not in printed, command
