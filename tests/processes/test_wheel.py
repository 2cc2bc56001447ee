"""The wheel in empty environments: each extra does its part, and what is missing is named with the command for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.patience import eventually
from harness.ports import free_ports
from harness.process import environment
from tests.support.wheels import Installed, build

PROMISES = ("O9",)
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

BASE = """
import sys

import headwater

with headwater.connect(sys.argv[1]) as cluster:
    cluster.create_topic("payments", 2)
    places = [cluster.produce("payments", f"p{i}", partition=0).offset for i in range(3)]
    values = [record.value for record in cluster.consume("payments", follow=False)]
    assert places == [0, 1, 2] and values == [b"p0", b"p1", b"p2"], (places, values)
    for attempt in (
        lambda: cluster.scan("payments").to_arrow(),
        lambda: list(cluster.sql("SELECT 1").batches()),
        lambda: headwater.connect("."),
    ):
        try:
            attempt()
        except headwater.errors.MissingExtra as error:
            print(error)
third = {name.partition(".")[0] for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", "") or "")}
print(sorted(third - {"headwater", "typing_extensions"}), len([name for name in sys.modules if name.startswith("headwater")]))
"""  # noqa: E501


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


class Up:
    """`headwater up` of an installed wheel."""

    def __init__(self, installed: Installed, directory: Path, more: Mapping[str, str]) -> None:
        port = free_ports(3)
        self.kafka, pages, gateway = (f"127.0.0.1:{port + i}" for i in range(3))
        self.url = f"http://{gateway}"
        self.installed = installed
        self.said = directory / "said"
        with self.said.open("wb") as out, (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(installed.bin / "headwater"), "up", "--data", str(directory / "data"),
                    "--kafka", self.kafka, "--http", pages, "--gateway-http", gateway,
                ],
                stdout=out, stderr=log, env=environment(more), cwd=directory,
            )  # fmt: skip

    def wait(self) -> str:
        """What it printed when it was ready."""
        eventually(
            lambda: self.process.poll() is not None or "in another terminal" in self.said.read_text(), "it serves"
        )
        return self.said.read_text()

    def run(self, *arguments: str, text: str = "", timeout: float = 150.0) -> str:
        """What a command prints."""
        done = self.installed.run("headwater", *arguments, text=text, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def serving(installed: Installed, directory: Path, **more: str) -> Iterator[Up]:
    directory.mkdir()
    up = Up(installed, directory, more)
    try:
        yield up
    finally:
        up.process.terminate()
        code = up.process.wait(60)
    assert code == 0


def test_the_server_alone_serves_and_says_what_it_lacks(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path / "env", wheel, ["server"])
    with serving(installed, tmp_path / "up") as up:
        said = up.wait()
        for extra in ("lake", "sql", "registry"):
            assert f"pip install 'headwater[{extra}]'" in said
        up.run("topic", "create", "orders", "--bootstrap", up.kafka)
        up.run("produce", "orders", "--bootstrap", up.kafka, text="a\nb\n")
        assert up.run("consume", "orders", "--count", "2", "--bootstrap", up.kafka) == "a\nb\n"
        _base_reaches_it(wheel, tmp_path, up)
        asked = installed.run("headwater", "sql", "SELECT 1", "--gateway", up.url)
        assert asked.returncode == 2 and "answers no SQL" in asked.stderr
        assert asked.stderr.endswith("pip install 'headwater[sql]'\n")
        schema = tmp_path / "schema.avsc"
        schema.write_text('"string"')
        data = str(tmp_path / "up" / "data")
        told = installed.run("headwater", "schema", "register", "orders-value", str(schema), "--data", data)
        assert told.returncode != 0 and "pip install 'headwater[registry]'" in told.stderr
    settling = installed.run("headwater", "compactor", "--data", data)
    assert settling.returncode == 1
    assert settling.stderr.strip().endswith("pip install 'headwater[lake]'")


def _base_reaches_it(wheel: Path, tmp_path: Path, up: Up) -> None:
    """The wheel without any extra works over HTTP, with msgspec alone and thirty modules at most."""
    base = Installed(tmp_path / "base", wheel, [])
    assert {path.name.partition("-")[0] for path in base.packages.glob("*.dist-info")} == {
        "headwater",
        "msgspec",
        "typing_extensions",
    }
    done = base.run("python", "-c", BASE, up.url)
    assert done.returncode == 0, done.stderr
    arrow, sql, place, loaded = done.stdout.splitlines()
    assert "headwater[arrow]" in arrow and "headwater[arrow]" in sql and "headwater[server]" in place
    names, _, count = loaded.rpartition(" ")
    assert names == "['msgspec']" and int(count) <= 30
    command = base.run("headwater", "--help")
    assert command.returncode == 1 and command.stderr.endswith("pip install 'headwater[cli]'\n")


def test_with_the_lake_topics_become_tables(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path / "env", wheel, ["lake", "sql", "java"])
    with serving(installed, tmp_path / "up") as up:
        said = up.wait()
        assert "pip install 'headwater[registry]'" in said and "[lake]" not in said and "[sql]" not in said
        up.run("topic", "create", "orders", "--bootstrap", up.kafka)
        up.run("produce", "orders", "--bootstrap", up.kafka, text="".join(f"{i}\n" for i in range(100)))
        assert up.run("consume", "orders", "--count", "1", "--bootstrap", up.kafka) == "0\n"
        up.run("table", "settle", "orders", "--data", str(tmp_path / "up" / "data"), "--timeout", "120")
        counted = up.run("sql", "SELECT count(*) AS n FROM orders", "--output", "json", "--gateway", up.url)
        assert '"rows":[[100]]' in counted.replace(" ", "")


def test_the_lake_alone_says_what_it_lacks(wheel: Path, tmp_path: Path) -> None:
    """Also Java, on a machine without one, before a topic waits for it."""
    installed = Installed(tmp_path / "env", wheel, ["lake"])
    with serving(installed, tmp_path / "up", PATH=str(installed.bin), JAVA_HOME="") as up:
        said = up.wait()
        for extra in ("sql", "registry", "java"):
            assert f"pip install 'headwater[{extra}]'" in said
        assert "[lake]" not in said
        up.run("topic", "create", "orders", "--bootstrap", up.kafka)
        up.run("produce", "orders", "--bootstrap", up.kafka, text="a\n")
        assert up.run("consume", "orders", "--count", "1", "--bootstrap", up.kafka) == "a\n"
    checked = installed.run("headwater", "doctor", "--data", str(tmp_path / "up" / "data"))
    assert checked.returncode == 0 and checked.stdout.endswith("all is well\n"), checked.stderr


def test_the_environment_has_no_more_than_it_should(wheel: Path, tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    server = Installed(tmp_path / "env", wheel, ["server"])
    for name in ("pyspark", "pyiceberg", "duckdb", "fastavro", "grpc", "pytest", "confluent_kafka"):
        done = server.run("python", "-c", f"import {name}")
        assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr, name
    assert str(sys.prefix) != str(server.bin.parent)
