"""`headwater cluster describe` on real brokers, by their protocol and by their ledger."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.patience import eventually
from harness.process import headwater
from headwater import __version__
from headwater.settings.addresses import without_secrets
from headwater.state.machine import LEVEL
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("O6", "H3")

ZONES = {1: "a", 2: "b", 3: "a"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("describe"), brokers=3, settings='zones = "a,b"') as running:
        running.create("one", 3)
        running.create("two", 4)
        yield running


@promise("M2", "M3")
def test_by_the_ledger(server: Running) -> None:
    """Everything about a cluster, from its data directory."""
    facts = eventually(lambda: _with_housekeeper(server), "a broker has taken up housekeeping")
    brokers = facts["brokers"]
    assert {b["node"]: b["zone"] for b in brokers} == ZONES
    assert {b["node"]: b["epoch"] for b in brokers} == server.epochs()
    assert [b["addresses"]["PLAINTEXT"] for b in brokers] == server.bootstrap.split(",")
    assert all(b["version"] == __version__ and b["beating"] and not b["degraded"] for b in brokers)
    assert (facts["topics"], facts["partitions"], facts["groups"], facts["controller"]) == (2, 7, 0, 1)
    assert facts["ledger"].startswith("sqlite:///") and facts["objects"].startswith("file:///")
    assert [(d["domain"], d["level"]) for d in facts["domains"]] == [(0, LEVEL), (1, LEVEL)]
    assert (facts["level"], {b["level"] for b in brokers}) == (LEVEL, {LEVEL})
    assert all(d["position"] > 0 for d in facts["domains"])
    [lease] = _housekeeping(facts)
    assert lease["node"] in ZONES


def _with_housekeeper(server: Running) -> dict[str, Any] | None:
    """What is told, once one of the brokers has the lease that they all want."""
    done = headwater("cluster", "describe", "--data", str(server.data), "--output", "json")
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts if _housekeeping(facts) else None


def _housekeeping(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [lease for lease in facts["leases"] if lease["name"] == "housekeeping" and lease["domain"] == 1]


@promise("M3", "H3")
def test_by_the_protocol(server: Running) -> None:
    """What Kafka's protocol tells needs no access to the ledger."""
    done = headwater("cluster", "describe", "--bootstrap", server.bootstrap, "--output", "json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert {b["node"]: b["zone"] for b in facts["brokers"]} == ZONES
    assert (facts["topics"], facts["partitions"], facts["groups"], facts["controller"]) == (2, 7, 0, 1)
    assert (facts["level"], facts["known_level"], facts["ledger"]) == (LEVEL, LEVEL, None)


@promise("M5")
def test_upgrading_what_is_up_to_date(server: Running) -> None:
    """There is nothing to raise."""
    done = headwater("cluster", "upgrade", "--bootstrap", server.bootstrap)
    assert (done.returncode, done.stdout) == (0, f"the cluster is at level {LEVEL}; no broker knows a newer one\n")
    done = headwater("cluster", "upgrade", "--level", str(LEVEL + 1), "--timeout", "0", "--bootstrap", server.bootstrap)
    assert done.returncode != 0 and f"was not raised to {LEVEL + 1}" in done.stderr


@promise("H3")
def test_as_text(server: Running) -> None:
    """The same for people."""
    done = headwater("cluster", "describe", "--data", str(server.data))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    [head] = [line.split() for line in lines if line.startswith("NODE")]
    rows = [dict(zip(head, line.split(), strict=True)) for line in lines if line.split()[1:2] == ["broker"]]
    assert {int(row["NODE"]): (row["ZONE"], row["STATE"]) for row in rows} == {n: (z, "well") for n, z in ZONES.items()}
    assert any(line.split() == ["partitions:", "7"] for line in lines)
    assert any(line.split() == ["level:", str(LEVEL)] for line in lines)


@promise("M2")
def test_a_silent_broker(tmp_path: Path) -> None:
    """A cluster that is not running is described too, and its brokers are silent."""
    with Running(tmp_path) as server:
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)  # it would start the broker again
        server.broker(1).kill()
        server.kill_all()
        done = headwater("cluster", "describe", "--data", str(server.data), "--output", "json")
        assert done.returncode == 0, done.stderr
        [broker] = json.loads(done.stdout)["brokers"]
        assert broker["beating"] is False


@promise("H3")
def test_without_a_cluster() -> None:
    """Nobody there is an error of Kafka's, with its exit code."""
    done = headwater("cluster", "describe", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.startswith("headwater: ")


@promise("S3")
def test_no_secrets() -> None:
    """Passwords in URLs are not printed."""
    assert without_secrets("etcd://me:secret@h1:1,h2:2/base?token=x") == "etcd://h1:1,h2:2/base"
    assert without_secrets("s3://bucket/prefix") == "s3://bucket/prefix"
    assert without_secrets("file:///tmp/x") == "file:///tmp/x"
    assert without_secrets("sqlite:///tmp/x/ledger.db") == "sqlite:///tmp/x/ledger.db"
