"""What `headwater doctor` says about links, mirrors and damaged checkpoints."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import msgspec

from headwater.app.doctor.examining import check_links, examine
from headwater.app.doctor.report import Report
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.objects.local import LocalStore
from headwater.replica.checkpoint import write_checkpoint
from headwater.settings.settings import Settings
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import CreateTopic, TakeEpoch
from headwater.state.commands.links import LinkPhase, LinkSpec, PutLink, SetLinkTopic, SetMirror
from headwater.state.machine import LEVEL
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import TOPIC, Scribe

PROMISES = ("O6", "N1")

A, B = 1, 2
SPEC = LinkSpec("old", ("h:1",), {}, (), (), (), {}, False)


class Story:
    """A topic with two mirrors under generation 2."""

    def __init__(self) -> None:
        self.cluster, self.state = ClusterState(), StreamsState(Domain(1))
        one, two = Scribe(self.cluster), Scribe(self.state)
        one.do(0, TakeEpoch("p", 1, "z", (), LEVEL, "b"))
        one.do(1, CreateTopic(TOPIC, "t", 2, {}, Domain(1)))
        one.do(1, PutLink(SPEC, 0))
        one.do(1, SetLinkTopic(TOPIC, "old", "t", uuid.UUID(int=1), LinkPhase.COPYING, "", 0))
        two.streams(A, B)
        two.do(1, SetMirror((A, B), 2, True))

    def findings(self) -> list[str]:
        report = Report()
        check_links(self.cluster, self.state, report)
        return [f"{finding.check}: {finding.problem}" for finding in report.findings]

    def mirror(self, **changes: object) -> None:
        stream = self.state.streams[A]
        stream.mirror = msgspec.structs.replace(stream.mirror, **changes)


@promise("O6")
def test_mirrors_as_they_should_be() -> None:
    """Also those that are behind their topic, and those of a change that came later."""
    story = Story()
    assert story.findings() == []
    for generation in (1, 2, 3):
        story.mirror(generation=generation)
        assert story.findings() == []


@promise("O6")
def test_mirrors_that_cannot_be() -> None:
    """Each is told."""
    story = Story()
    story.cluster.links.last_number = 9
    story.mirror(generation=3)
    assert story.findings() == ["mirrors: is at generation 3, its topic at 2"]
    story.mirror(generation=2, on=False)
    assert story.findings() == ["mirrors: is not a mirror; its topic says otherwise"]
    story.mirror(on=True)
    story.state.streams[A].open = (0,)
    assert story.findings() == ["mirrors: is a mirror with open reservations or transactions"]
    story.state.streams[A].open = ()
    del story.cluster.links.links["old"]
    assert story.findings() == ["links: is a topic of link 'old', which does not exist"]
    story.cluster.links.topics.clear()
    assert story.findings() == ["mirrors: is a mirror, and no link copies its topic"] * 2


@promise("O6")
def test_linked_topics_that_do_not_exist() -> None:
    """A deleted topic takes its link along."""
    story = Story()
    story.cluster.topics.clear()
    assert story.findings() == ["links: is linked, and does not exist"]


@promise("M1")
def test_a_damaged_checkpoint_before_a_whole_ledger(tmp_path: Path) -> None:
    """It is the one finding: the records of the ledger give the state. A truncated ledger gives none."""

    async def story() -> tuple[list[str], list[str]]:
        ledger, store = SqliteLedger(tmp_path / "ledger.db"), LocalStore(tmp_path / "objects")
        scribe = Scribe(ClusterState())
        scribe.do(0, TakeEpoch("p", 1, "z", (), LEVEL, "b"))
        for data in scribe.records:
            await ledger.append(Domain(0), data)
        assert await write_checkpoint(ledger, store, ClusterState())
        [checkpoint] = tmp_path.rglob("*.ckpt")
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
        whole = await findings()
        await ledger.truncate(Domain(0), await ledger.last(Domain(0)))
        cut = await findings()
        await ledger.close()
        await store.close()
        assert all(checkpoint.name in text for text in (*whole, *cut))
        return whole, cut

    async def findings() -> list[str]:
        report = await examine(Settings(data=str(tmp_path)))
        return [f"{one.check} {one.subject}: {one.problem}" for one in report.findings]

    [whole], [cut] = asyncio.run(story())
    assert whole.startswith("checkpoint domain 0 at 1: ") and "cannot be used" in whole
    assert cut.startswith("ledger domain 0: ") and "start from a backup" in cut
