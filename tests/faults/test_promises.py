"""The five promises of `docs/conditional-appends.md`, each through HTTP and the Delta table, on one real server.

They build on one another, so they are the steps of one story: what a step wrote must still be there after the next.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pytest

from harness.patience import eventually
from harness.ports import free_port
from harness.process import headwater
from tests.faults.appending import Poster, Told, until_served
from tests.invariants.crashing import WORD, doomed_gateway
from tests.support.promise import promise
from tests.support.running import Running

pytestmark = pytest.mark.long
TOPIC = "accounts"
SETTINGS = """
[housekeeping]
interval_ms = 300
checkpoint_bytes = 200

[lake]
interval_ms = 200
niceness = 0
"""


class Story:
    """A server, and what its log and its table must hold."""

    def __init__(self, server: Running) -> None:
        self.values: list[str] = []
        self.goes_on(server)

    def goes_on(self, server: Running) -> None:
        """Use this server from now on."""
        self.server = server
        until_served(server.gateway)

    def post(self, value: str, expected: int | None = None, key: str = "", address: str = "") -> Told:
        body: dict[str, Any] = {"records": [{"partition": 0, "key": value, "value": value}]}
        if expected is not None:
            body["expected_offset"] = expected
        with Poster([address or self.server.gateway], 0) as poster:
            return poster.post(TOPIC, body, key)

    def append(self, value: str, expected: int | None = None, key: str = "") -> Told:
        told = self.post(value, expected, key)
        assert told.status == 200, told
        self.values.append(value)
        return told

    def check(self) -> None:
        """The log read over HTTP, and both ends of it."""
        with Poster([self.server.gateway], 0) as poster:
            told = poster.ask("GET", f"/v1/topics/{TOPIC}/partitions/0/records?offset=0&limit=1000")
        assert told.status == 200, told
        found = [(record["offset"], record["value"]) for record in told.json["records"]]
        assert found == list(enumerate(self.values))

    def check_table(self) -> None:
        """The Delta table as delta-rs reads it."""
        self.server.cli("table", "settle", TOPIC, "--config", str(self.server.config), "--timeout", "200", timeout=240)
        [root] = (self.server.data / "objects" / "tables").glob(f"{TOPIC}-*")
        rows = deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=["offset", "value"]).to_pylist()
        assert sorted((row["offset"], row["value"].decode()) for row in rows) == list(enumerate(self.values))

    def again(self) -> None:
        """Kill everything, and start it again."""
        self.server.kill_all()
        self.server.start()
        until_served(self.server.gateway)


def conflict(story: Story) -> None:
    """Promise 1: of two writers that expect the same offset one wins; the other is told what is there, and retries."""
    told: dict[str, Told] = {}
    threads = [threading.Thread(target=lambda v=v: told.update({v: story.post(v, expected=0)})) for v in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    [won] = [value for value, answer in told.items() if answer.status == 200]
    [lost] = [value for value, answer in told.items() if answer.status == 409]
    story.values.append(won)
    assert told[lost].json["partitions"] == [{"partition": 0, "expected": 0, "present": 1}]
    story.append(lost, expected=1)
    story.check()


def retry(story: Story) -> None:
    """Promise 2: a request that is repeated with its key is appended once, and gets the same answer."""
    first = story.append("keyed", key="k-1")
    for _ in range(3):
        again = story.post("keyed", key="k-1")
        assert again.replayed and again.body == first.body
    assert story.post("another", key="k-1").status == 422
    story.check()


def replay(story: Story) -> None:
    """Promise 3: after a crash the state comes out of a checkpoint and the records behind it."""
    eventually(lambda: _has_checkpoints(story), "checkpoints are written", every=0.2)
    story.append("behind the checkpoint", expected=len(story.values))
    story.again()
    story.check()
    assert story.post("keyed", key="k-1").replayed
    assert story.post("late", expected=0).json["partitions"][0]["present"] == len(story.values)


def _has_checkpoints(story: Story) -> bool:
    """Whether there are two. If not, there is something more to write into the next one."""
    if len(checkpoints(story.server)) >= 2:
        return True
    story.append(f"record {len(story.values)}")
    return False


def checkpoint_removed(story: Story) -> None:
    """Promise 4: without the newest checkpoint the one before it and the ledger give the same state."""
    story.server.kill_all()
    newest = checkpoints(story.server)[-1]
    newest.unlink()
    story.server.start()
    until_served(story.server.gateway)
    story.check()
    assert story.post("keyed", key="k-1").replayed
    story.append("after the loss", expected=len(story.values))


def killed(story: Story, directory: Path) -> None:
    """Promise 5: killed between data and commit, nothing is visible; after the commit, the retry gets the answer."""
    for step in ("stored", "entered"):
        address = f"127.0.0.1:{free_port()}"
        value = f"{WORD.decode()} {step}"
        with doomed_gateway(directory, story.server.data, address, step) as doomed:
            until_served(address)
            assert story.post(value, key=step, address=address).status == 0
            assert doomed.wait(timeout=60) == -signal.SIGKILL
        if step == "entered":
            story.values.append(value)
        story.check()
        again = story.post(value, key=step)
        assert again.status == 200 and again.replayed == (step == "entered")
        if step == "stored":
            story.values.append(value)
        assert again.json["records"][0]["offset"] == len(story.values) - 1
        story.check()


def looked_up(story: Story) -> None:
    """Not a promise of appends, but of look-ups: every record is found by its key, here by the index of keys."""
    with Poster([story.server.gateway], 0) as poster:

        def indexed() -> bool:
            table = poster.ask("GET", f"/v1/tables/{TOPIC}").json
            return any(one["name"] == "keys" and one["version"] == table["version"] for one in table["followers"])

        eventually(indexed, "the index of keys follows the table")
        for offset, value in enumerate(story.values):
            told = poster.ask("GET", f"/v1/topics/{TOPIC}/latest?key={quote(value)}")
            assert told.status == 200 and told.json["record"]["offset"] == offset, told
        assert poster.ask("GET", f"/v1/topics/{TOPIC}/latest?key=never").status == 404
        [root] = (story.server.data / "objects" / "tables").glob(f"{TOPIC}-*")
        assert list((root / "_keys").glob("*.run"))


def checkpoints(server: Running) -> list[Path]:
    """The checkpoints of the topic's domain, oldest first."""
    return sorted((server.data / "objects" / "meta" / "v1" / "domain=1" / "checkpoint").glob("*.ckpt"))


@promise("H1", "L4", "L1")
@pytest.mark.timeout(300)
def test_the_promises_hold(tmp_path: Path) -> None:
    """The first lives have no compactor, which would only be killed. The last one has, for the table."""
    with Running(tmp_path / "first", gateway=True, settings=SETTINGS) as server:
        server.create(TOPIC, 1, **{"headwater.key.index": "true"})
        story = Story(server)
        conflict(story)
        retry(story)
        replay(story)
        checkpoint_removed(story)
    with Running(tmp_path / "last", data=server.data, lake=True, gateway=True, settings=SETTINGS) as last:
        story.goes_on(last)
        killed(story, tmp_path)
        story.check()
        story.check_table()
        looked_up(story)
    assert headwater("doctor", "--data", str(server.data)).returncode == 0
