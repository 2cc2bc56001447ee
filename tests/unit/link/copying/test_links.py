"""Links of a process in virtual time, with a source in memory."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.virtual import run
from headwater.app.node import Node
from headwater.client.errors import Unreachable
from headwater.client.model import Config, ConfigSource
from headwater.client.references import Allowed
from headwater.errors import Damaged, NotReady, OutcomeUnknown, StoreUnavailable
from headwater.link.breaker import State as BreakerState
from headwater.link.copying.appending import Appender
from headwater.link.copying.link import SHARES
from headwater.link.copying.links import Copying
from headwater.link.copying.metrics import collect
from headwater.link.copying.origin import KafkaOrigin, connector
from headwater.link.health import Status
from headwater.link.source.errors import SourceTruncated
from headwater.replica.link_changes import LinkChanges
from headwater.replica.linked import LinkedLine, facts_of
from headwater.replica.links import Linking
from headwater.state.cluster.links import LinkedTopic
from headwater.state.commands.links import LinkPhase
from tests.support.batches import Rec, batch
from tests.support.link_world import (
    PATIENCE_SECONDS,
    QUICK,
    ModelSource,
    copied,
    copying_of,
    end_of,
    link,
    linked,
    linking_of,
    until,
)
from tests.support.source_clusters import ModelCluster, ModelTopic
from tests.support.source_logs import ABORT, COMMIT
from tests.support.virtual_nodes import ONE, NodeWorld, sent, topic, way_of

Story = Callable[[Node, ModelSource], Awaitable[None]]


def tell(story: Story) -> None:
    """Run a story with a node and a source."""

    async def main() -> None:
        node, source = await NodeWorld().node(links=QUICK), ModelSource()
        try:
            await story(node, source)
        finally:
            await node.background.close()

    run(main())


def status_of(copying: Copying, part: str) -> Status:
    found = {component.name: component.status for component in copying.components()}
    return found.get(f"first/{part}", Status.HEALTHY)


def reason_of(copying: Copying, part: str) -> str:
    [found] = [component for component in copying.components() if component.name == f"first/{part}"]
    return found.reason


async def follows(node: Node, source: ModelSource, name: str = "t", partitions: int = 1) -> Copying:
    """A link of a topic that is copied up to its end."""
    copying = copying_of(node, source)
    copying.start()
    await link(node, name)
    for partition in range(partitions):
        await until(lambda at=partition: end_of(node, name, at) == source.topics[name][1][at].stable)  # type: ignore[misc]
    return copying


def test_records_have_their_offsets_and_gaps_stay() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        [log] = source.create("t")
        source.put("t", 0, b"a", b"b")
        source.put("t", 0, b"gone", producer=7)
        source.put("t", 0, b"kept", producer=8)
        log.finish(7, ABORT)
        log.finish(8, COMMIT)
        log.skip(5)
        source.put("t", 0, b"c")
        await follows(node, source)
        assert await copied(node, "t") == source.committed("t") == [(0, b"a"), (1, b"b"), (3, b"kept"), (11, b"c")]

    tell(story)


def test_a_link_to_a_file_that_is_not_listed_any_more_stops_its_topics(tmp_path: Path) -> None:
    """The reason is in what `link describe` shows. Nothing is read, and nothing is connected."""
    secret = tmp_path / "password"
    secret.write_text("correct horse")
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "ann", "sasl.password.file": str(secret)}

    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.put("t", 0, b"a")
        before = copying_of(node, source)
        before.start()
        await link(node, "t", security=security)
        await until(lambda: end_of(node, "t") == 1)
        await before.close()
        connect = connector(node.settings.links, {}, node.domains.clock, node.domains.chance)
        after = Copying(node.domains, node.writers, node.settings, connect)
        after.start()
        await until(lambda: (found := linked(node, "t")) is not None and found.phase is LinkPhase.STOPPED)
        [line] = facts_of(node.cluster.state, node.domains, "first").linked
        assert line.state == "stopped" and "links.secret_directories" in line.reason
        assert status_of(after, "source") is Status.UNHEALTHY and "links.secret_directories" in reason_of(
            after, "source"
        )
        await LinkChanges.of(node.domains, QUICK).resume("first")
        await until(lambda: (found := linked(node, "t")) is not None and found.phase is LinkPhase.STOPPED)
        assert end_of(node, "t") == 1
        await after.close()

    tell(story)


def test_a_gap_at_the_end_is_left_too() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        [log] = source.create("t")
        source.put("t", 0, b"gone", producer=7)
        log.finish(7, ABORT)
        await follows(node, source)
        assert end_of(node, "t") == 2 and await copied(node, "t") == []
        source.put("t", 0, b"a")
        await until(lambda: end_of(node, "t") == 3)
        assert await copied(node, "t") == [(2, b"a")]

    tell(story)


def test_an_open_transaction_holds_up_its_own_partition_only() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        logs = source.create("t", 2)
        source.put("t", 0, b"open", producer=7)
        source.put("t", 1, b"a")
        copying = await follows(node, source, partitions=2)
        for number in range(5):
            source.put("t", 0, b"behind")
            source.put("t", 1, b"%d" % number)
            await until(lambda: end_of(node, "t", 1) == logs[1].end)
        assert end_of(node, "t", 0) == 0 and status_of(copying, "partitions") is Status.HEALTHY
        await until(lambda: status_of(copying, "partitions") is Status.DEGRADED)
        assert reason_of(copying, "partitions") == (
            "t-0: 6 records wait at the source for the transaction at offset 0 to end"
        )
        held = next(metric for metric in collect(copying, 0) if metric.name == "headwater_link_held_records")
        assert {labels["partition"]: value for labels, value in held.samples} == {"0": 6, "1": 0}
        logs[0].finish(7, COMMIT)
        await until(lambda: status_of(copying, "partitions") is Status.HEALTHY)
        await until(lambda: end_of(node, "t", 0) == logs[0].end)
        assert await copied(node, "t", 0) == source.committed("t", 0)

    tell(story)


def test_a_source_that_began_later_begins_there() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        [log] = source.create("t")
        source.put("t", 0, b"a", b"b", b"c")
        log.delete_before(2)
        await follows(node, source)
        assert await copied(node, "t") == [(2, b"c")]

    tell(story)


@pytest.mark.parametrize("accept", [False, True])
def test_retention_of_the_source_that_overtakes_a_link(accept: bool) -> None:
    async def story(node: Node, source: ModelSource) -> None:
        [log] = source.create("t")
        source.put("t", 0, b"a")
        copying = copying_of(node, source)
        copying.start()
        await link(node, "t", options={"accept.gap": "true"} if accept else {})
        await until(lambda: end_of(node, "t") == 1)
        source.down = Unreachable("away")
        source.put("t", 0, b"b")
        source.put("t", 0, b"c")
        log.delete_before(2)
        source.down = None
        if accept:
            await until(lambda: end_of(node, "t") == 3)
            assert await copied(node, "t") == [(0, b"a"), (2, b"c")]
            return
        await until(lambda: linked(node, "t").phase is LinkPhase.STOPPED)  # type: ignore[union-attr]
        assert "begins at 2" in linked(node, "t").reason  # type: ignore[union-attr]
        await until(lambda: status_of(copying, "topics") is Status.UNHEALTHY)
        assert end_of(node, "t") == 1

    tell(story)


@pytest.mark.parametrize("change", ["link", "gap"])
def test_a_topic_that_was_resumed_is_not_stopped_by_what_was_found_before(change: str) -> None:
    """The process has not looked at the changed link yet, and runs the copies of the old one."""

    async def main() -> None:
        node, source = await NodeWorld().node(links=replace(QUICK, check_ms=1 << 40)), ModelSource()
        changes = LinkChanges(node.cluster, linking_of(node), Allowed())
        [log] = source.create("t")
        source.put("t", 0, b"a")
        copying = copying_of(node, source)
        await link(node, "t")
        while not copying.runners():
            await copying.round()
        await until(lambda: end_of(node, "t") == 1)
        [runner] = copying.runners()
        [copier] = runner.copiers()
        source.put("t", 0, b"b")
        source.put("t", 0, b"c")
        log.delete_before(2)
        await until(lambda: linked(node, "t").phase is LinkPhase.STOPPED)  # type: ignore[union-attr]
        await changes.resume("first", accept_gap=True)
        if change == "link":
            runner.assign(frozenset(range(SHARES)))  # the rest of a round that began before the change
            await asyncio.sleep(PATIENCE_SECONDS / 10)
        else:
            runner.link, runner.accept_gap = node.cluster.state.links.links["first"], True
            runner.ended(copier, SourceTruncated("found before", 0))
            await asyncio.sleep(PATIENCE_SECONDS / 10)
        assert linked(node, "t").phase is LinkPhase.COPYING  # type: ignore[union-attr]
        await copying.round()
        await copying.round()
        await until(lambda: end_of(node, "t") == 3)
        assert await copied(node, "t") == [(0, b"a"), (2, b"c")]
        await copying.close()
        await node.background.close()

    run(main())


def recreate(source: ModelSource) -> None:
    source.create("t")
    source.put("t", 0, b"other", b"other", b"other", b"other")


def truncate(source: ModelSource) -> None:
    [log] = source.topics["t"][1]
    log.batches.pop()
    log.end = 1


def delete(source: ModelSource) -> None:
    del source.topics["t"]


@pytest.mark.parametrize(("change", "reason"), [(recreate, "another"), (truncate, "ends at 1"), (delete, "no such")])
def test_another_history_stops_the_topic_and_nothing_is_mixed(
    change: Callable[[ModelSource], None], reason: str
) -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.create("other")
        source.put("t", 0, b"a")
        source.put("t", 0, b"b", b"c")
        copying = copying_of(node, source)
        copying.start()
        await link(node, "t", "other")
        await until(lambda: end_of(node, "t") == 3)
        before = await copied(node, "t")
        change(source)
        await until(lambda: linked(node, "t").phase is LinkPhase.STOPPED)  # type: ignore[union-attr]
        assert reason in linked(node, "t").reason  # type: ignore[union-attr]
        source.put("other", 0, b"x")
        await until(lambda: end_of(node, "other") == 1)
        assert await copied(node, "t") == before
        await until(lambda: reason in reason_of(copying, "topics"))

    tell(story)


def test_new_partitions_and_new_topics_are_followed() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        [log] = source.create("t")
        await follows(node, source)
        source.topics["t"] = source.topics["t"][0], [log, type(log)()]
        source.put("t", 1, b"second")
        await until(lambda: end_of(node, "t", 1) == 1)
        assert await copied(node, "t", 1) == [(0, b"second")]

    tell(story)


def test_a_topic_of_the_same_name_with_records_is_left_alone() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.put("t", 0, b"theirs")
        mine = await topic(node)
        await sent(node, mine.streams[0], batch([b"mine"]))
        copying = copying_of(node, source)
        copying.start()
        await link(node, "t")
        await until(lambda: "cannot be linked" in reason_of(copying, "topics") if copying.components() else False)
        assert await copied(node, "t") == [(0, b"mine")]
        await sent(node, mine.streams[0], batch([b"more"]))

    tell(story)


def test_an_empty_topic_of_the_same_name_is_taken_over() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t", 2)
        source.put("t", 1, b"a")
        await topic(node)
        await follows(node, source, partitions=2)
        assert await copied(node, "t", 1) == [(0, b"a")]

    tell(story)


def test_a_source_that_is_away_opens_the_breaker_and_comes_back() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.put("t", 0, b"a")
        copying = await follows(node, source)
        source.down = Unreachable("away")
        await until(lambda: status_of(copying, "source") is Status.DEGRADED)
        await until(lambda: status_of(copying, "source") is Status.UNHEALTHY)
        assert reason_of(copying, "source") == "away"
        before = source.fetches
        await asyncio.sleep(20)
        assert source.fetches - before < 10
        source.put("t", 0, b"b")
        source.down = None
        await until(lambda: end_of(node, "t") == 2)
        await until(lambda: status_of(copying, "source") is Status.HEALTHY)
        assert await copied(node, "t") == source.committed("t")

    tell(story)


def test_a_partition_that_fails_is_retried_and_holds_up_no_other() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t", 3)
        copying = await follows(node, source, partitions=3)
        source.failing["t", 0] = NotReady("no leader")
        for partition in range(3):
            source.put("t", partition, b"a")
        await until(lambda: end_of(node, "t", 1) == end_of(node, "t", 2) == 1)
        await until(lambda: status_of(copying, "partitions") is Status.DEGRADED)
        assert end_of(node, "t", 0) == 0 and "no leader" in reason_of(copying, "partitions")
        source.failing.clear()
        await until(lambda: end_of(node, "t", 0) == 1)
        await until(lambda: status_of(copying, "partitions") is Status.HEALTHY)

    tell(story)


def test_stores_here_that_fail_lose_and_double_nothing() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        await follows(node, source)
        store: Any = node.domains.store
        for number in range(20):
            source.put("t", 0, b"%d" % number)
            if number % 3 == 0:
                store.put_errors.append(StoreUnavailable("full"))
            if number % 4 == 0:
                way_of(node).faults.append((number % 8 == 0, OutcomeUnknown("lost")))
            await asyncio.sleep(0.2)
        await until(lambda: end_of(node, "t") == 20)
        assert await copied(node, "t") == source.committed("t")

    tell(story)


def test_producers_are_refused_until_the_topic_is_promoted() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.put("t", 0, b"a")
        await follows(node, source)
        stream = node.cluster.state.names["t"].streams[0]
        assert (await sent(node, stream, batch([b"mine"]))).offset < 0
        await LinkChanges.of(node.domains, QUICK).promote("first")
        assert (await sent(node, stream, batch([b"mine"]))).offset == 1
        source.put("t", 0, b"late")
        await asyncio.sleep(5)
        assert await copied(node, "t") == [(0, b"a"), (1, b"mine")]

    tell(story)


async def grouped(node: Node, source: ModelSource) -> Copying:
    """A link with a group, which is copied up to its end. The group has committed nothing yet."""
    source.create("t", 2)
    source.put("t", 0, b"a", b"b", b"c")
    source.groups["readers"] = {}
    copying = copying_of(node, source)
    copying.start()
    await link(node, "t", groups=("readers",))
    await until(lambda: end_of(node, "t") == 3)
    return copying


async def promoted(node: Node, **how: bool) -> None:
    """Promote as an operator does, and wait."""
    changes = LinkChanges.of(node.domains, QUICK)
    await changes.promote("first", **how)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await changes.is_promoted("first"):
            await asyncio.sleep(0.05)


def test_offsets_of_groups_are_there_when_a_topic_is_promoted() -> None:
    """A group that stopped at the source goes on here at once, where it was."""

    async def story(node: Node, source: ModelSource) -> None:
        await grouped(node, source)
        for offset in (1, 2, 3):
            source.groups["readers"] = {("t", 0): offset}
            await promoted(node)
            assert _committed(node, "readers") == offset
            await LinkChanges.of(node.domains, QUICK).resume("first", ["t"])

    tell(story)


def test_a_promotion_waits_for_a_source_that_is_away_unless_it_is_forced() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        await grouped(node, source)
        source.groups["readers"] = {("t", 0): 2}
        source.down = Unreachable("away")
        changes = LinkChanges.of(node.domains, QUICK)
        await changes.promote("first")
        await asyncio.sleep(30)
        assert not await changes.is_promoted("first") and linked(node, "t").phase is LinkPhase.PROMOTING  # type: ignore[union-attr]
        source.down = None
        await until(lambda: linked(node, "t").phase is LinkPhase.PROMOTED)  # type: ignore[union-attr]
        assert _committed(node, "readers") == 2
        await changes.resume("first", ["t"])
        source.down = Unreachable("away")
        await changes.promote("first")
        await changes.promote("first", force=True)
        assert await changes.is_promoted("first")

    tell(story)


def test_a_group_that_the_source_does_not_show_holds_up_no_other() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        copying = await grouped(node, source)
        source.refused["secret"] = "not authorized"
        source.groups["readers"] = {("t", 0): 2}
        await until(lambda: _committed(node, "readers") == 2)
        await until(lambda: status_of(copying, "groups") is Status.DEGRADED)
        assert reason_of(copying, "groups") == "secret: not authorized"
        await promoted(node)
        source.refused.clear()

    tell(story)


def test_a_link_that_is_paused_promotes_its_topics_with_their_groups() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        copying = await grouped(node, source)
        changes = LinkChanges.of(node.domains, QUICK)
        await changes.pause("first")
        await until(lambda: not copying.runners())
        source.groups["readers"] = {("t", 0): 2}
        source.put("t", 0, b"late")
        await promoted(node)
        assert _committed(node, "readers") == 2
        assert end_of(node, "t") == 3, "a link that is paused copies no records"
        await until(lambda: not copying.runners())

    tell(story)


def test_a_promotion_that_waits_has_all_that_the_source_had() -> None:
    """Also what is in a transaction that is open when it begins, and what several processes copy."""

    async def main() -> None:
        world, source = NodeWorld(), ModelSource()
        first, second = await world.node(1, links=QUICK), await world.node(2, links=QUICK)
        logs = source.create("t", 8)
        both = [copying_of(first, source), copying_of(second, source)]
        for copying in both:
            copying.start()
        await link(first, "t")
        await until(lambda: all(_places(copying) for copying in both))
        source.down = Unreachable("away")
        for partition in range(8):
            source.put("t", partition, b"a", b"b")
        source.put("t", 3, b"open", producer=7)
        waiting = asyncio.create_task(promoted(first, finish=True))
        await asyncio.sleep(5)
        source.down = None
        await asyncio.sleep(30)
        assert not waiting.done(), "a transaction is open"
        for partition in range(8):
            assert end_of(first, "t", partition) == 2
        logs[3].finish(7, COMMIT)
        await waiting
        assert end_of(first, "t", 3) == 4 and await copied(first, "t", 3) == source.committed("t", 3)
        source.put("t", 0, b"late")
        await asyncio.sleep(5)
        assert end_of(first, "t", 0) == 2
        await first.background.close()
        await second.background.close()

    run(main())


def test_a_promotion_that_waits_ends_though_compaction_removed_the_newest_records() -> None:
    """The copy has a gap up to the end of the source, and producers go on behind it."""

    async def main() -> None:
        node, cluster = await NodeWorld().node(links=QUICK), ModelCluster()
        cluster.fetch_s = 0.1
        cluster.configs = [Config("cleanup.policy", "compact", ConfigSource.TOPIC, False, None)]
        log = cluster.create("t").partitions[0].log
        log.append([(0, Rec(b"kept"))], 1)
        log.skip(3)
        copying = Copying(
            node.domains, node.writers, node.settings, lambda link: KafkaOrigin(cluster.source(QUICK), link.spec)
        )
        copying.start()
        await link(node, "t")
        await until(lambda: end_of(node, "t") == 1)
        await promoted(node, finish=True)
        assert end_of(node, "t") == 4 and await copied(node, "t") == [(0, b"kept")]
        await node.background.close()

    run(main())


def test_a_promotion_ends_though_the_source_goes_on() -> None:
    """It waits for the end that the source had when it was asked for, not for a later one."""

    async def story(node: Node, source: ModelSource) -> None:
        await grouped(node, source)
        changes = LinkChanges.of(node.domains, QUICK)
        await changes.promote("first", finish=True)
        for number in range(1000):
            if await changes.is_promoted("first"):
                break
            source.put("t", 0, b"%d" % number)
            await asyncio.sleep(0.02)
        assert await changes.is_promoted("first")

    tell(story)


def test_configs_of_the_source_are_followed() -> None:
    """Those that mean something here, also when they are reset. A value that is not valid here changes nothing."""

    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.configs["t"] = {"retention.ms": "1000", "min.insync.replicas": "2"}
        copying = await follows(node, source)

        def configs() -> dict[str, str]:
            return node.cluster.state.names["t"].configs

        assert configs() == {"retention.ms": "1000"}
        source.configs["t"] = {"cleanup.policy": "compact", "compression.type": "zstd"}
        await until(lambda: configs() == source.configs["t"])
        source.configs["t"] = {"retention.ms": "soon"}
        await until(lambda: status_of(copying, "configs") is Status.DEGRADED)
        assert reason_of(copying, "configs").startswith("t: ")
        assert configs() == {"cleanup.policy": "compact", "compression.type": "zstd"}
        source.configs["t"] = {}
        await until(lambda: configs() == {})
        await until(lambda: status_of(copying, "configs") is Status.HEALTHY)
        del source.configs["t"]
        await node.broker.topics.alter(node.cluster.state.names["t"], {"retention.ms": "5"}, ())
        await asyncio.sleep(5)
        assert configs() == {"retention.ms": "5"}, "a link that does not follow configs leaves them alone"

    tell(story)


def test_a_process_that_starts_knows_the_epoch_of_what_was_copied() -> None:
    """The epoch is in the WAL. Gaps at the end have none: it holds up to the last batch."""

    async def story(node: Node, source: ModelSource) -> None:
        async def resumed() -> tuple[int, int, int]:
            """The first fetch of a process that takes over."""
            nonlocal copying
            await copying.close()
            source.histories.clear()
            copying = copying_of(node, source)
            copying.start()
            await until(lambda: source.histories)
            return source.histories[0]

        [log] = source.create("t")
        source.put("t", 0, b"a")
        log.epoch = 5
        source.put("t", 0, b"b", b"c")
        copying = await follows(node, source)
        assert source.histories[0] == (0, -1, 0)
        assert await resumed() == (3, 5, 3)
        log.epoch = 6
        source.put("t", 0, b"gone", producer=7)
        log.finish(7, ABORT)
        await until(lambda: end_of(node, "t") == 5)
        assert await resumed() == (5, 5, 3)
        store: Any = node.domains.store
        kept = {path: store.objects.pop(path) for path in list(store.objects) if path.startswith("wal/")}
        assert await resumed() == (5, -1, 5), "an object that cannot be read holds up nothing"
        store.objects.update(kept)
        log.epoch = 8
        source.put("t", 0, b"d")
        await until(lambda: end_of(node, "t") == 6)
        assert await resumed() == (6, 8, 6)

    tell(story)


def test_a_failure_that_nobody_foresaw_begins_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        copying = await follows(node, source)
        failures = 0

        async def tail(appender: Appender) -> None:
            nonlocal failures
            failures += 1
            raise Damaged("bad bits")

        with monkeypatch.context() as patch:
            patch.setattr(Appender, "tail", tail)
            await LinkChanges.of(node.domains, QUICK).pause("first", ["t"])
            await LinkChanges.of(node.domains, QUICK).resume("first", ["t"])
            await until(lambda: "bad bits" in reason_of(copying, "partitions"))
            await asyncio.sleep(60)
        assert 2 <= failures <= 5
        source.put("t", 0, b"a")
        await until(lambda: end_of(node, "t") == 1)
        await until(lambda: status_of(copying, "partitions") is Status.HEALTHY)

    tell(story)


def test_a_process_that_has_nothing_to_ask_says_nothing_bad_of_the_source() -> None:
    """Its breaker would stay open for ever otherwise."""

    async def main() -> None:
        world, source = NodeWorld(), ModelSource()
        first, second = await world.node(1, links=QUICK), await world.node(2, links=QUICK)
        source.create("t", 24)
        both = [copying_of(first, source), copying_of(second, source)]
        for copying in both:
            copying.start()
        await link(first, "t")
        await until(lambda: all(_places(copying) for copying in both))
        source.down = Unreachable("away")
        await until(lambda: all(status_of(copying, "source") is Status.UNHEALTHY for copying in both))
        await LinkChanges.of(first.domains, QUICK).pause("first", ["t"])
        [follower] = [one for one in both if 0 not in one.runners()[0]._shares]
        await until(lambda: status_of(follower, "source") is Status.HEALTHY)
        assert follower.runners()[0].breaker.state is BreakerState.CLOSED
        await first.background.close()
        await second.background.close()

    run(main())


def test_everybody_sees_how_far_the_source_is() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t", 2)
        source.put("t", 0, b"a")
        await follows(node, source, partitions=2)

        def line() -> LinkedLine:
            [found] = facts_of(node.cluster.state, node.domains, "first").linked
            return found

        await until(lambda: line().lag == 0)
        assert line().source_ends == [1, 0]
        node.domains.store.put_errors += [StoreUnavailable("full")] * 1000  # type: ignore[attr-defined]
        source.put("t", 1, b"b", b"c")
        await until(lambda: line().lag == 2)
        assert (line().source_ends, line().ends) == ([1, 2], [1, 0])
        node.domains.store.put_errors.clear()  # type: ignore[attr-defined]
        await until(lambda: line().lag == 0)

    tell(story)


def _committed(node: Node, group: str) -> int:
    stored = node.domains[ONE].state.groups.get(group)
    found = stored.offsets.get(node.cluster.state.names["t"].id, {}) if stored is not None else {}
    return found[0].offset if 0 in found else -1


def test_offsets_of_groups_follow_and_never_go_back() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.put("t", 0, b"a", b"b", b"c")
        source.groups["readers"] = {("t", 0): 2, ("elsewhere", 0): 9}
        copying = copying_of(node, source)
        copying.start()
        await link(node, "t", groups=("readers",))
        await until(lambda: _committed(node, "readers") == 2)
        source.groups["readers"] = {("t", 0): 9}
        await until(lambda: _committed(node, "readers") == 3)
        source.groups["readers"] = {("t", 0): 1}
        await asyncio.sleep(5)
        assert _committed(node, "readers") == 3
        assert [runner.groups_copied for runner in copying.runners()] == [2]

    tell(story)


def test_a_link_that_is_paused_copies_nothing_and_goes_on_later() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.put("t", 0, b"a")
        copying = await follows(node, source)
        linking = linking_of(node)
        known = linking.get("first")
        paused = await linking.put(replace(known.spec, paused=True), known.version)
        await until(lambda: not copying.runners())
        source.put("t", 0, b"b")
        await asyncio.sleep(5)
        assert end_of(node, "t") == 1
        await linking.put(replace(paused.spec, paused=False), paused.version)
        await until(lambda: end_of(node, "t") == 2)
        assert await copied(node, "t") == source.committed("t")

    tell(story)


def test_two_processes_share_the_partitions_and_take_over() -> None:
    async def main() -> None:
        world, source = NodeWorld(), ModelSource()
        first, second = await world.node(1, links=QUICK), await world.node(2, links=QUICK)
        source.create("t", 24)
        one, two = copying_of(first, source), copying_of(second, source)
        one.start()
        two.start()
        await link(first, "t")
        await until(lambda: len(_places(one)) + len(_places(two)) == 24 and _places(one) and _places(two))
        assert not set(_places(one)) & set(_places(two))
        await two.close()
        await until(lambda: len(_places(one)) == 24)
        for partition in range(24):
            source.put("t", partition, b"%d" % partition)
        for partition in range(24):
            await until(lambda at=partition: end_of(first, "t", at) == 1)  # type: ignore[misc]
        await first.background.close()
        await second.background.close()

    run(main())


def _places(copying: Copying) -> list[tuple[str, int]]:
    return [copier.place for runner in copying.runners() for copier in runner.copiers()]


def test_two_processes_that_copy_the_same_partition_double_nothing() -> None:
    """Leases prevent it only most of the time."""

    async def main() -> None:
        world, source = NodeWorld(), ModelSource()
        first, second = await world.node(1, links=QUICK), await world.node(2, links=QUICK)
        source.create("t")
        good, rogue = copying_of(first, source), copying_of(second, source)
        good.start()
        await link(first, "t")
        await until(lambda: end_of(first, "t") == 0)
        await asyncio.sleep(1)
        rogue._shares = lambda link: frozenset(range(SHARES))  # type: ignore[method-assign]
        rogue._lease = _no_lease  # type: ignore[method-assign]
        rogue.start()
        for number in range(40):
            source.put("t", 0, b"%d" % number)
            await asyncio.sleep(0.03)
        await until(lambda: end_of(first, "t") == 40)
        assert await copied(first, "t") == source.committed("t")
        assert all(_places(one) for one in (good, rogue))
        await first.background.close()
        await second.background.close()

    run(main())


async def _no_lease(links: list[str]) -> None:
    """A process that asks nobody."""


def test_fetching_stops_while_the_log_here_takes_nothing() -> None:
    async def main() -> None:
        world, source = NodeWorld(), ModelSource()
        small = replace(QUICK, ahead_bytes=4_000, ahead_total_bytes=8_000, flush_bytes=1_000)
        node = await world.node(links=small)
        source.create("t")
        source.fetch_bytes = 2_000
        copying = await follows(node, source)
        world.store.gate.clear()
        for number in range(200):
            source.put("t", 0, b"%d" % number * 100)
        await asyncio.sleep(30)
        [runner] = copying.runners()
        [copier] = runner.copiers()
        assert copier.position < 100 and not copier.hungry
        world.store.gate.set()
        await until(lambda: end_of(node, "t") == 200)
        assert await copied(node, "t") == source.committed("t")
        await node.background.close()

    run(main())


def test_metrics_tell_how_far_each_partition_is() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t", 2)
        source.put("t", 0, b"a", b"b")
        copying = await follows(node, source, partitions=2)
        found = {
            metric.name: dict((tuple(sorted(k.items())), v) for k, v in metric.samples)
            for metric in collect(copying, 0)
        }
        key = (("link", "first"), ("partition", "0"), ("topic", "t"))
        assert found["headwater_link_offsets_total"][key] == 2
        assert found["headwater_link_lag_records"][key] == 0
        assert found["headwater_link_source_end"][key] == 2
        assert found["headwater_link_breaker"][(("link", "first"),)] == 0

    tell(story)


def test_a_stop_that_others_overtake_changes_nothing() -> None:
    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        copying = await follows(node, source)
        seen = linked(node, "t")
        assert seen is not None
        await linking_of(node).change(seen, LinkPhase.PAUSED, "by hand")
        [runner] = copying.runners()
        await runner._topics.stop(seen, str(SourceTruncated("late", 0)))
        assert linked(node, "t").phase is LinkPhase.PAUSED  # type: ignore[union-attr]
        await until(lambda: not _places(copying))

    tell(story)


def test_a_stop_is_noted_however_long_the_ledger_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would note it, and the topic would stand still without a word."""
    refusals = 12
    change = Linking.change

    async def story(node: Node, source: ModelSource) -> None:
        source.create("t")
        source.put("t", 0, b"a")
        source.put("t", 0, b"b", b"c")
        copying = await follows(node, source)

        async def refused(self: Linking, topic: LinkedTopic, phase: LinkPhase, reason: str = "") -> LinkedTopic:
            nonlocal refusals
            refusals -= 1
            if refusals >= 0:
                raise NotReady("the ledger is away")
            return await change(self, topic, phase, reason)

        monkeypatch.setattr(Linking, "change", refused)
        truncate(source)
        await until(lambda: status_of(copying, "partitions") is Status.UNHEALTHY)
        assert "ends at 1" in reason_of(copying, "partitions")
        await until(lambda: linked(node, "t").phase is LinkPhase.STOPPED)  # type: ignore[union-attr]
        assert refusals < 0 and "ends at 1" in linked(node, "t").reason  # type: ignore[union-attr]

    tell(story)


@pytest.mark.parametrize("version", [12, 17])
def test_what_one_broker_says_of_a_topic_does_not_stop_it(version: int) -> None:
    """Its view may be old: another topic of the name, or fewer partitions. All brokers together decide.

    Before version 13 a fetch names topics by their names, so only metadata tell that a topic is another one.
    """

    async def main() -> None:
        node, cluster = await NodeWorld().node(links=QUICK), ModelCluster(2)
        cluster.fetch_s, cluster.fetch_version = 0.1, version
        own = cluster.create("t", 2)
        copying = Copying(
            node.domains, node.writers, node.settings, lambda link: KafkaOrigin(cluster.source(QUICK), link.spec)
        )
        copying.start()
        await link(node, "t")
        await until(lambda: end_of(node, "t", 1) == 0)
        for stale in (ModelTopic(uuid.uuid4(), own.partitions), ModelTopic(own.id, own.partitions[:1])):
            cluster.brokers[0].stale["t"] = stale
            await asyncio.sleep(5)
            cluster.brokers[0].stale.clear()
            for partition in own.partitions:
                partition.log.append([(0, Rec(b"a"))], 1)
            await until(lambda: all(end_of(node, "t", p) == own.partitions[p].log.end for p in (0, 1)))
        assert linked(node, "t").phase is LinkPhase.COPYING  # type: ignore[union-attr]
        cluster.create("t", 2)
        for partition in cluster.topics["t"].partitions:
            for _ in range(2):
                partition.log.append([(0, Rec(b"other"))], 1)
        await until(lambda: linked(node, "t").phase is LinkPhase.STOPPED)  # type: ignore[union-attr]
        assert "created anew" in linked(node, "t").reason  # type: ignore[union-attr]
        assert [await copied(node, "t", p) for p in (0, 1)] == [[(0, b"a"), (1, b"a")]] * 2
        await node.background.close()

    run(main())
