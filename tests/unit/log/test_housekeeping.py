"""Retention, garbage collection, orphans, producers, checkpoints, by whoever holds the lease."""

import asyncio
import uuid
from collections.abc import Mapping

import pytest

from harness.virtual import EPOCH_MS, run
from headwater.app.node import Node
from headwater.configs.topics import TopicConfig
from headwater.errors import StoreUnavailable
from headwater.log.housekeeping import WAITING_MS
from headwater.log.wal import format as wal
from headwater.settings.settings import Housekeeping, Transactions
from headwater.state.cluster.resources import ALL_BROKERS, ConfigResource
from headwater.state.commands.base import Fence, Tick
from headwater.state.commands.cluster import AlterConfigs, AlterResource, CreateTopic
from headwater.state.commands.links import LinkPhase, SetLinkTopic
from headwater.state.commands.streams import CreateStreams, TrimStreams
from headwater.state.commands.transactions import InitTransaction, JoinTransaction
from headwater.state.records import Command
from headwater.state.results import Done, Result, Verdict
from headwater.state.streams.domain import HOUSEKEEPING
from headwater.types import Pieces, WalId
from tests.support.batches import Rec, batch, values
from tests.support.links import link
from tests.support.promise import promise
from tests.support.virtual_nodes import ONE, NodeWorld, read, sent, topic, way_of

PROMISES = ("L3", "L6", "K11", "M1")

SETTINGS = Housekeeping(
    interval_ms=1 << 40,
    lease_ms=30_000,
    dead_object_grace_ms=60_000,
    orphan_interval_ms=600_000,
    producer_expiry_ms=3_600_000,
    checkpoint_bytes=1 << 40,
)


async def tick(node: Node) -> None:
    """Let the domain's time catch up with the clock."""
    await node.domains[ONE].submit([Tick()])


def stored(world: NodeWorld) -> list[WalId | None]:
    return [wal.id_of_path(path) for path in world.wal_paths()]


async def trim(node: Node, stream: int, start: int) -> None:
    await node.domains[ONE].submit([TrimStreams([(stream, start)])])


@promise("L6")
def test_retention_by_time_and_size() -> None:
    """Log starts move as each topic asks, in one round."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        [by_time] = (await topic(node, "time", retention_ms="60000")).streams
        [by_size] = (await topic(node, "size", retention_ms="-1", retention_bytes="100")).streams
        [kept] = (await topic(node, "kept", retention_ms="-1")).streams
        [by_default] = (await topic(node, "default")).streams
        minute = {"log.retention.ms": "60000"}
        await node.cluster.submit([AlterResource(ConfigResource.BROKER, ALL_BROKERS, minute, ())])
        for i in range(3):
            stamp = EPOCH_MS + i * 50_000
            for stream in (by_time, by_size, kept, by_default):
                await sent(node, stream, batch([Rec(b"x" * 50, None, stamp)]))
        await asyncio.sleep(125)
        await tick(node)
        await node.housekeeper.round()
        streams = node.domains[ONE].state.streams
        assert [streams[s].log_start for s in (by_time, by_size, kept, by_default)] == [2, 2, 0, 2]
        assert node.housekeeper.trimmed_streams == 3
        assert [v for v, _ in values(await read(node, by_time, 2))] == [2]
        await node.housekeeper.round()
        assert node.housekeeper.trimmed_streams == 3

    run(told())


@promise("L6")
def test_a_topics_configs_are_parsed_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once per stream, of which a topic may have thousands."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        for name in ("one", "two"):
            for stream in (await topic(node, name, partitions=3)).streams:
                await sent(node, stream, batch([Rec(b"x")]))
        parsed: list[Mapping[str, str]] = []

        def counted(configs: Mapping[str, str], common: Mapping[str, str]) -> TopicConfig:
            parsed.append(configs)
            return parse(configs, common)

        parse = TopicConfig.of
        monkeypatch.setattr(TopicConfig, "of", counted)
        await node.housekeeper.round()
        assert len(parsed) == 4, "each topic once for its log starts and once for its streams"

    run(told())


@promise("K7")
def test_configs_that_did_not_reach_the_streams_are_copied() -> None:
    """A broker may die between the change of a topic and that of its streams."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        changed, other = await topic(node, "changed"), await topic(node, "other")
        stamped = {"message.timestamp.type": "LogAppendTime"}
        await node.cluster.submit([AlterConfigs(changed.id, stamped, ())])
        streams = node.domains[ONE].state.streams
        assert not streams[changed.streams[0]].append_time
        await node.housekeeper.round()
        assert streams[changed.streams[0]].append_time and not streams[other.streams[0]].append_time
        await node.cluster.submit([AlterConfigs(changed.id, {}, tuple(stamped))])
        position = node.domains[ONE].state.position
        await node.housekeeper.round()
        assert not streams[changed.streams[0]].append_time
        after = node.domains[ONE].state.position
        await node.housekeeper.round()
        assert (node.domains[ONE].state.position == after) and after > position, "what is equal is left alone"
        default = {"log.message.timestamp.type": "LogAppendTime"}
        await node.cluster.submit([AlterResource(ConfigResource.BROKER, ALL_BROKERS, default, ())])
        await node.housekeeper.round()
        assert streams[changed.streams[0]].append_time and streams[other.streams[0]].append_time

    run(told())


@promise("K7")
def test_a_topic_deleted_while_it_is_created_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever carried its creation through finds it gone; streams entered too late are dropped."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        kept = await topic(node, "kept")
        topic_id = uuid.UUID(int=7)
        await node.cluster.submit([CreateTopic(topic_id, "late", 2, {}, ONE)])
        late = node.cluster.state.topics[topic_id]
        streams = tuple(late.streams)
        submit = node.domains[ONE].submit

        async def deleted_first(commands: list[Command]) -> list[Result]:
            if any(isinstance(command, CreateStreams) for command in commands):
                node.domains[ONE].submit = submit  # type: ignore[method-assign]
                await node.broker.topics.delete(late)
            return await submit(commands)

        node.domains[ONE].submit = deleted_first  # type: ignore[method-assign, assignment]
        await node.housekeeper.round()
        assert topic_id not in node.cluster.state.topics
        assert not any(record.levelname == "ERROR" for record in caplog.records)
        assert sorted(node.domains[ONE].state.streams) == sorted(kept.streams)
        assert not set(streams) & set(kept.streams)

    run(told())


@promise("L3")
def test_dead_objects_go_after_their_grace() -> None:
    """A reader may still be on its way to them; then the object goes, and only then the memory of it."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        one, two = (await topic(node, partitions=2)).streams
        await asyncio.gather(*(sent(node, s, batch([b"x"])) for s in (one, two)))
        await sent(node, one, batch([b"y"]))
        objects = node.domains[ONE].state.objects
        assert stored(world) == [WalId(1, 1), WalId(1, 2)]
        await trim(node, one, 1)
        await asyncio.sleep(100)
        await tick(node)
        await node.housekeeper.round()
        assert stored(world) == [WalId(1, 1), WalId(1, 2)], "the other stream still needs it"
        await trim(node, two, 1)
        await asyncio.sleep(59)
        await tick(node)
        await node.housekeeper.round()
        assert len(stored(world)) == 2, "within its grace"
        assert objects.get(WalId(1, 1)) is not None
        await asyncio.sleep(2)
        await tick(node)
        await node.housekeeper.round()
        assert stored(world) == [WalId(1, 2)]
        assert objects.get(WalId(1, 1)) is None
        assert node.housekeeper.deleted_objects == 1
        assert values(await read(node, one, 1)) == [(1, b"y")]

    run(told())


@promise("L3", "M1")
def test_nothing_is_deleted_that_the_newest_checkpoint_needs() -> None:
    """Else a ledger that is lost could not be made again."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        [stream] = (await topic(node)).streams
        for value in (b"x", b"y"):
            await sent(node, stream, batch([value]))
        await trim(node, stream, 1)
        await asyncio.sleep(61)
        await tick(node)
        put = world.store.put

        async def refuse(path: str, pieces: Pieces) -> None:
            raise StoreUnavailable("no")

        world.store.put = refuse  # type: ignore[method-assign]
        await node.housekeeper.round()
        assert len(stored(world)) == 2, "there is no checkpoint"
        world.store.put = put  # type: ignore[method-assign]
        await node.housekeeper.round()
        assert len(stored(world)) == 1
        await trim(node, stream, 2)
        await asyncio.sleep(61)
        await tick(node)
        world.store.put = refuse  # type: ignore[method-assign]
        await node.housekeeper.round()
        assert len(stored(world)) == 1, "the checkpoint needs it"
        world.store.put = put  # type: ignore[method-assign]
        await node.housekeeper.round()
        assert stored(world) == []

    run(told())


@promise("L3", "M1")
def test_deletions_wait_for_a_checkpoint_until_it_pays() -> None:
    """It pays for a tenth of the bytes, and after ten minutes for the least of them."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        small, large = (await topic(node, partitions=2)).streams
        await sent(node, small, batch([b"x"]))
        for _ in range(2):
            await sent(node, large, batch([b"x" * 1_000]))
        await node.housekeeper.round()
        first = await world.ledger.pointer(ONE)
        assert first is not None and first.time_ms == node.domains[ONE].state.clock_ms
        await trim(node, small, 1)
        await asyncio.sleep(61)
        await tick(node)
        await node.housekeeper.round()
        assert (await world.ledger.pointer(ONE), len(stored(world))) == (first, 3), "too little for a checkpoint"
        await asyncio.sleep(WAITING_MS / 1000)
        await tick(node)
        await node.housekeeper.round()
        second = await world.ledger.pointer(ONE)
        assert second != first and len(stored(world)) == 2, "it has waited for long"
        await trim(node, large, 1)
        await asyncio.sleep(61)
        await tick(node)
        await node.housekeeper.round()
        assert await world.ledger.pointer(ONE) != second and len(stored(world)) == 1, "half of the bytes"

    run(told())


@promise("L3")
def test_what_could_not_be_deleted_is_not_forgotten() -> None:
    """Or it would leak."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        [stream] = (await topic(node)).streams
        await sent(node, stream, batch([b"x"]))
        await trim(node, stream, 1)
        await asyncio.sleep(61)
        await tick(node)
        inner = world.store.delete

        async def refuse(path: str) -> None:
            raise StoreUnavailable("no")

        world.store.delete = refuse  # type: ignore[method-assign]
        await node.housekeeper.round()
        assert node.domains[ONE].state.objects.get(WalId(1, 1)) is not None
        world.store.delete = inner  # type: ignore[method-assign]
        await node.housekeeper.round()
        assert node.domains[ONE].state.objects.get(WalId(1, 1)) is None
        assert stored(world) == []

    run(told())


@promise("L3", "K7")
def test_dropped_topics_give_their_objects_back() -> None:
    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        made = await topic(node)
        await sent(node, made.streams[0], batch([b"x"]))
        await node.broker.topics.delete(made)
        await asyncio.sleep(61)
        await tick(node)
        await node.housekeeper.round()
        assert stored(world) == []

    run(told())


@promise("L3")
def test_orphans_of_fenced_epochs_only() -> None:
    """A live epoch's object may still be entered; another domain's, another kind of object, are left alone."""

    async def told() -> None:
        world = NodeWorld()
        node, other = await world.node(1, housekeeping=SETTINGS), await world.node(2, housekeeping=SETTINGS)
        [stream] = (await topic(node)).streams
        await other.domains[ONE].barrier()
        await sent(other, stream, batch([b"kept"]))

        def orphan(domain: int, epoch: int, sequence: int) -> str:
            return wal.path_of("local", domain, EPOCH_MS, WalId(epoch, sequence))

        mine, theirs = orphan(1, 1, 77), orphan(1, 2, 77)
        elsewhere, foreign = orphan(2, 2, 78), "wal/v1/zone=local/domain=1/README"
        for path in (mine, theirs, elsewhere, foreign):
            world.store.objects[path] = b"orphan"
        await node.housekeeper.round()
        assert set(world.store.objects) >= {mine, theirs, elsewhere, foreign}
        way_of(other).error = StoreUnavailable("cut off")
        await node.cluster.submit([Fence(2)])
        await node.domains[ONE].submit([Fence(2)])
        await node.housekeeper.round()
        assert theirs not in world.store.objects
        assert set(world.store.objects) >= {mine, elsewhere, foreign}
        assert node.housekeeper.deleted_orphans == 1
        assert values(await read(node, stream)) == [(0, b"kept")], "what was entered stays"
        fresh = orphan(1, 2, 99)
        world.store.objects[fresh] = b"late upload of a fenced writer"
        await node.housekeeper.round()
        assert fresh in world.store.objects, "nothing was fenced since, so not yet"
        await asyncio.sleep(601)
        await node.housekeeper.round()
        assert fresh not in world.store.objects

    run(told())


@promise("L3")
def test_a_fence_in_domain_0_alone_does_not_count() -> None:
    """An epoch's leftovers in a domain go only once its fence stands in that domain."""

    async def told() -> None:
        world = NodeWorld()
        node, other = await world.node(1, housekeeping=SETTINGS), await world.node(2, housekeeping=SETTINGS)
        way_of(other).error = StoreUnavailable("cut off")
        path = wal.path_of("local", 1, EPOCH_MS, WalId(2, 5))
        world.store.objects[path] = b"it may still be entered"
        await node.cluster.submit([Fence(2)])
        await node.housekeeper.round()
        assert path in world.store.objects

    run(told())


@promise("K11")
def test_producers_expire() -> None:
    """After a day of silence, or what is set; what they were is remembered."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        [stream] = (await topic(node)).streams
        await sent(node, stream, batch([b"x"], producer=(7, 0, 0)))
        producers = node.domains[ONE].state.streams[stream].producers
        assert producers is not None
        await asyncio.sleep(3590)
        await tick(node)
        await node.housekeeper.round()
        assert len(producers) == 1
        await asyncio.sleep(11)
        await tick(node)
        before = await world.ledger.last(ONE)
        await node.housekeeper.round()
        assert len(producers) == 0
        after = await world.ledger.last(ONE)
        assert after > before
        await node.housekeeper.round()
        assert (await sent(node, stream, batch([b"y"], producer=(7, 0, 40)))).verdict is Verdict.ACCEPTED

    run(told())


@promise("K12")
def test_transactional_ids_that_nobody_uses_are_forgotten() -> None:
    """After seven days, as in Kafka, or what is set. An open transaction keeps its id."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS, transactions=Transactions(id_expiry_ms=3_600_000))
        [stream] = (await topic(node)).streams
        replica = node.domains[ONE]
        for number, name in enumerate(("idle", "open", "used")):
            await replica.submit([InitTransaction(name, 1 << 30, 70 + number, -1, -1)])
        await replica.submit([JoinTransaction("open", 71, 0, (stream,), ())])
        await asyncio.sleep(3590)
        await replica.submit([InitTransaction("used", 1 << 30, 0, -1, -1)])
        before = await world.ledger.last(ONE)
        await node.housekeeper.round()
        known = replica.state.transactions
        assert len(known) == 3
        await asyncio.sleep(20)
        await tick(node)
        await node.housekeeper.round()
        assert [found.id for found in known] == ["open", "used"]
        assert node.housekeeper.forgotten_ids == 1 and await world.ledger.last(ONE) > before
        at = await world.ledger.last(ONE)
        await node.housekeeper.round()
        assert await world.ledger.last(ONE) == at, "there is nothing to forget"

    run(told())


@promise("M2")
def test_one_of_two_does_it() -> None:
    """Whoever holds the lease; when it is fenced or silent, another."""

    async def told() -> None:
        world = NodeWorld()
        settings = Housekeeping(interval_ms=1 << 40, checkpoint_bytes=1)
        one, two = await world.node(1, housekeeping=settings), await world.node(2, housekeeping=settings)
        [stream] = (await topic(one)).streams
        await two.domains[ONE].barrier()
        await one.housekeeper.round()
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None
        lease = one.domains[ONE].state.lease(HOUSEKEEPING)
        assert lease is not None
        assert lease.holder == 1
        await sent(two, stream, batch([b"x"]))
        await two.housekeeper.round()
        assert await world.ledger.pointer(ONE) == pointer, "it is not its turn"
        await one.stop()
        await two.housekeeper.round()
        moved = await world.ledger.pointer(ONE)
        assert moved is not None
        assert moved.position > pointer.position
        after = two.domains[ONE].state.lease(HOUSEKEEPING)
        assert after is not None
        assert (after.holder, after.number > lease.number) == (2, True)

    run(told())


@promise("M1")
def test_checkpoints_when_the_ledger_has_grown() -> None:
    """By bytes, for domain 0 and the others; and no more often."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=Housekeeping(interval_ms=1 << 40, checkpoint_bytes=2000))
        [stream] = (await topic(node)).streams
        await node.housekeeper.round()
        first = await world.ledger.pointer(ONE)
        assert first is not None, "the first one is written soon"
        positions = [first.position]
        for _ in range(100):
            await sent(node, stream, batch([b"x"]))
            await node.housekeeper.round()
            pointer = await world.ledger.pointer(ONE)
            if pointer is not None and pointer.position not in positions:
                positions.append(pointer.position)
        assert 3 <= len(positions) <= 100 * 80 // 2000 + 3
        late = await world.node(2)
        assert late.domains[ONE].state.streams[stream].next_offset == 100
        checkpoints = [p for p in world.store.objects if "domain=1/checkpoint" in p]
        assert len(checkpoints) == 2

    run(told())


@promise("M1")
def test_a_damaged_checkpoint_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """By the first round after the start. Until then, the process names it in its log and in its health."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=Housekeeping(interval_ms=1 << 40, checkpoint_bytes=1))
        [stream] = (await topic(node)).streams
        await sent(node, stream, batch([b"x"]))
        await node.housekeeper.round()
        await node.stop()
        pointer = await world.ledger.pointer(ONE)
        assert pointer is not None
        world.store.objects[pointer.path] = world.store.objects[pointer.path][:-1] + b"\xff"
        late = await world.node(2, housekeeping=Housekeeping(interval_ms=1 << 40, checkpoint_bytes=1 << 40))
        assert late.domains[ONE].state.streams[stream].next_offset == 1
        [named] = await late.domains.bad_checkpoints()
        assert named.startswith(pointer.path)
        [line] = [one for one in caplog.records if "checkpoint cannot be read" in one.message]
        assert vars(line)["object"] == pointer.path and line.levelname == "WARNING"
        await late.housekeeper.round()
        assert await late.domains.bad_checkpoints() == []
        mended = await world.ledger.pointer(ONE)
        assert mended is not None and mended.path != pointer.path and pointer.path not in world.store.objects
        await late.housekeeper.round()
        assert await world.ledger.pointer(ONE) == mended, "one is enough"

    run(told())


@promise("K7")
def test_half_made_topics_are_finished() -> None:
    """Whatever a dead process began."""

    async def told() -> None:
        world = NodeWorld()
        node, other = await world.node(1, housekeeping=SETTINGS), await world.node(2, housekeeping=SETTINGS)
        way = way_of(other)
        inner = way.append

        async def only_domain_0(domain: int, record: bytes) -> int:
            if domain == ONE:
                raise StoreUnavailable("away")
            return await inner(domain, record)  # type: ignore[arg-type]

        way.append = only_domain_0  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreUnavailable):
            await topic(other)
        await node.cluster.barrier()
        assert node.cluster.state.names["t"].ready == 0
        await node.housekeeper.round()
        assert node.cluster.state.names["t"].ready == 1

    run(told())


@promise("L3")
def test_one_failure_does_not_stop_the_rest() -> None:
    """A domain whose housekeeping fails is put off; the loop goes on by itself."""

    async def told() -> None:
        world = NodeWorld()
        settings = Housekeeping(interval_ms=1000, checkpoint_bytes=1 << 40, dead_object_grace_ms=1000)
        node = await world.node(housekeeping=settings)
        [stream] = (await topic(node)).streams
        await sent(node, stream, batch([b"x"]))
        await trim(node, stream, 1)
        way_of(node).error = StoreUnavailable("away")
        await asyncio.sleep(5)
        way_of(node).error = None
        await asyncio.sleep(60)
        assert stored(world) == []

    run(told())


@promise("L3")
def test_a_child_that_cannot_be_started_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """An `OSError` fails one round of one domain, and the log says so."""

    async def told() -> None:
        node = await NodeWorld().node(housekeeping=Housekeeping(interval_ms=1000, checkpoint_bytes=1))
        asked = []

        async def checkpoint(domain: int) -> None:
            asked.append(domain)
            raise OSError("no more processes")

        node.housekeeper._checkpoint = checkpoint
        await asyncio.sleep(10)
        assert asked.count(0) > 2 and asked.count(1) > 2
        [report] = [report for report in node.background.reports() if report.name == "housekeeping"]
        assert (report.state, report.restarts) == ("running", 0)

    run(told())
    failures = [record for record in caplog.records if record.getMessage() == "housekeeping failed"]
    assert failures[0].reason == "no more processes"  # type: ignore[attr-defined]


@promise("N1")
def test_mirrors_follow_their_topic() -> None:
    """A process that promotes a topic may die between the two steps; any other finishes it."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(housekeeping=SETTINGS)
        found = await link(node, "orders", 2)
        was, linked = found.stream().mirror, found.linked
        command = SetLinkTopic(linked.topic, "old", "source", linked.source_id, LinkPhase.PROMOTED, "", was.generation)
        [result] = await node.domains.cluster.submit([command])
        assert isinstance(result, Done) and found.stream().mirror == was
        await node.housekeeper.round()
        assert [found.stream(p).mirror.on for p in (0, 1)] == [False, False]
        assert found.stream().mirror.generation == result.value

    run(told())
