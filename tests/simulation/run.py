"""One simulation: a seed becomes a cluster, a workload and a series of misfortunes, and then a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from harness.loop import SimLoop
from headwater.app.doctor.examining import check_references, check_stream
from headwater.app.doctor.report import Report
from headwater.log.wal import format as wal
from headwater.log.write.writer import Writer
from headwater.replica.checkpoint import load_state, replay
from headwater.settings.settings import Settings
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.simulation.backends import BACKENDS
from tests.simulation.clients import Client, Consumer, History, Producer, Violation, create_topic, trim
from tests.simulation.cluster import SETTINGS, SimCluster
from tests.simulation.members import ClassicMember, ConsumerMember, Ledger, Member
from tests.simulation.stores import Faults, World

LIMIT_SECONDS = 600.0
QUIET_SECONDS = 12.0
GROUP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What happens to a cluster in one seed."""

    story: Callable[[World, SimCluster, History, random.Random], Awaitable[None]]
    brokers: tuple[int, ...]
    """The number of brokers is one of these."""
    settings: Settings = SETTINGS


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect put in on purpose, to see that it is found."""

    make_streams: Callable[[Domain], StreamsState] = StreamsState
    make_writer: Callable[..., Writer] = Writer


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed came to."""

    seed: int
    acknowledged: int
    steps: int
    problem: str | None
    log: list[str]


def simulate(seed: int, planted: Planted | None = None, backend: str = "memory", scene: Scene | None = None) -> Outcome:
    """Run one seed, on one of `BACKENDS`."""
    planted, scene = planted or Planted(), scene or LIFE
    loop = SimLoop()
    loop.set_exception_handler(lambda _loop, _context: None)
    rng = random.Random(seed)
    world = World(loop, rng, _faults(rng))
    BACKENDS[backend](world)
    cluster = SimCluster(
        world,
        rng.choice(scene.brokers),
        make_streams=planted.make_streams,
        make_writer=planted.make_writer,
        settings=scene.settings,
    )
    history = History()
    problem = None
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(asyncio.wait_for(scene.story(world, cluster, history, rng), LIMIT_SECONDS))
        except TimeoutError:
            problem = f"not finished after {LIMIT_SECONDS} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
            problem = f"{type(error).__name__}: {error}"
        if problem is None and world.lost:
            problem = f"Violation: deleted although the newest checkpoint needs it: {world.lost[0]}"
        steps = sum(broker.life.steps for broker in cluster.brokers.values())
        with warnings.catch_warnings():
            _bury(loop)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        sys.unraisablehook = hook
    acknowledged = sum(len(found) for found in history.acked.values())
    return Outcome(seed, acknowledged, steps, problem, cluster.log)


def simulate_all(seeds: range, backend: str = "memory", scene: Scene | None = None) -> list[Outcome]:
    """Run several seeds."""
    return [simulate(seed, backend=backend, scene=scene) for seed in seeds]


def _bury(loop: SimLoop) -> None:
    """Let go of all coroutines. The verdict is in; what their `finally` blocks do now is of no interest, nor what they
    were about to wait for."""
    warnings.simplefilter("ignore", RuntimeWarning)
    for task in loop.all_tasks:
        coro = task.get_coro()
        with contextlib.suppress(BaseException):
            if coro is not None:
                coro.close()
    loop.all_tasks.clear()


def _faults(rng: random.Random) -> Faults:
    """Some seeds are calm, most are bad in some respects."""

    def some(chance: float) -> float:
        return rng.choice([0.0, 0.0, chance / 4, chance])

    return Faults(
        append_lost=some(0.1),
        append_reply_lost=some(0.1),
        append_late=some(0.15),
        append_refused=some(0.05),
        put_refused=some(0.05),
        put_reply_lost=some(0.05),
        put_slow=some(0.1),
        read_refused=some(0.05),
        delay=rng.choice([0.0005, 0.002, 0.01]),
    )


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    cluster.reply_lost = rng.choice([0.0, 0.02, 0.1])
    cluster.start()
    partitions = rng.choice([1, 2])
    admin = Client(cluster, random.Random(rng.getrandbits(64)), history)
    chaos = asyncio.create_task(_chaos(world, cluster, history, random.Random(rng.getrandbits(64)), partitions))
    await create_topic(admin, partitions)
    members = _members(cluster, history, rng, partitions)
    producers = [
        Producer(cluster, random.Random(rng.getrandbits(64)), history, n, rng.randrange(partitions), rng.randint(5, 25))
        for n in range(rng.randint(1, 4))
    ]
    consumers = [Consumer(cluster, random.Random(rng.getrandbits(64)), history, p) for p in range(partitions)]
    reading = [asyncio.create_task(c.run()) for c in consumers]
    writing = [asyncio.create_task(p.run()) for p in producers]
    counting = [asyncio.create_task(m.run()) for m in members]
    reading += counting
    await until_done(writing, [*reading, chaos])
    chaos.cancel()
    heal(world, cluster)
    for member in members:
        member.mortal = False
    # Time for fences, sweeps and everybody's return.
    await until_done([asyncio.create_task(asyncio.sleep(QUIET_SECONDS))], reading)
    before = {member.ledger.name: member.ledger.commits for member in members}
    # Sessions of members that are gone end, and the others come together again.
    await until_done([asyncio.create_task(asyncio.sleep(GROUP_SECONDS))], reading)
    for member in members:
        if member.ledger.commits == before[member.ledger.name]:
            raise Violation(f"group {member.ledger.name} did not come together again")
    for consumer in consumers:
        consumer.stop = True
    for member in members:
        member.stop = True
    await until_done(reading, [])
    await _verdict(world, cluster, history, admin, producers)


LIFE = Scene(_story, brokers=(1, 2, 3, 3))
"""Producers, consumers and groups under every misfortune."""


def _members(cluster: SimCluster, history: History, rng: random.Random, partitions: int) -> list[Member]:
    """A group of some protocol in some seeds, so that the others stay as quick as they were."""
    kind = rng.choice([None, None, ClassicMember, ConsumerMember])
    if kind is None:
        return []
    ledger = Ledger(f"g{rng.getrandbits(16)}")
    count = rng.randint(1, 3)
    return [kind(cluster, random.Random(rng.getrandbits(64)), history, ledger, partitions) for _ in range(count)]


async def until_done(wanted: list[asyncio.Task[Any]], watched: list[asyncio.Task[Any]]) -> None:
    """Wait for tasks, but let any failure of the others through at once."""
    waiting = set(wanted)
    while waiting:
        done, _ = await asyncio.wait({*waiting, *(w for w in watched if not w.done())}, return_when="FIRST_COMPLETED")
        for task in done:
            task.result()
        waiting -= done


async def _chaos(world: World, cluster: SimCluster, history: History, rng: random.Random, partitions: int) -> None:
    client = Client(cluster, rng, history)
    while True:
        await asyncio.sleep(rng.expovariate(1 / 1.5))
        node = rng.choice(list(cluster.brokers))
        what = rng.random()
        if what < 0.35:
            life = cluster.brokers[node].life
            life.crash_at_step = life.steps + rng.randint(1, 400)
            asyncio.get_running_loop().call_later(1 + rng.random() * 5, cluster.restart, node)
        elif what < 0.6:
            cluster.pause(node, rng.random() * 10)
        elif what < 0.7:
            world.outage_until = world.loop.now + rng.random() * 2
            cluster.note("outage")
        elif what < 0.8:
            partition = rng.randrange(partitions)
            work = trim(client, partition, rng.randint(0, history.end.get(partition, 0)))
            asyncio.get_running_loop().create_task(work)
        else:
            for other in cluster.brokers:
                cluster.restart(other)


def heal(world: World, cluster: SimCluster) -> None:
    """End all misfortunes."""
    world.faults = Faults(delay=world.faults.delay)
    world.outage_until = 0.0
    cluster.reply_lost = 0.0
    cluster.note("healed")
    for node, broker in cluster.brokers.items():
        broker.life.crash_at_step = None
        broker.life.paused_until = 0.0
        cluster.restart(node)


async def _verdict(
    world: World, cluster: SimCluster, history: History, client: Client, producers: list[Producer]
) -> None:
    domain = Domain(1)
    state = cluster.make_streams(domain)
    await load_state(world.verdict_ledger, world.store, state)
    await replay(world.verdict_ledger, state)
    check_metadata(world, cluster, state)
    for partition in {*history.acked, *history.seen}:
        log = await _read_all(world, state, partition)
        start = next(s.log_start for s in state.streams.values() if s.partition == partition)
        for told, what in ((history.acked, "acknowledged"), (history.seen, "seen")):
            for offset, value in told.get(partition, {}).items():
                if offset >= start and log.get(offset) != value:
                    raise Violation(
                        f"partition {partition} offset {offset}: {value!r} was {what}, {log.get(offset)!r} is there"
                    )
        if start > history.trimmed.get(partition, 0):
            raise Violation(f"partition {partition} starts at {start}, deletion was asked to {history.trimmed}")
        _check_order(history, partition, log, {p.number for p in producers if p.idempotent})


async def _read_all(world: World, state: StreamsState, partition: int) -> dict[int, bytes]:
    """A partition's records straight from the index and the store."""
    from headwater.log.batch import join_patched
    from tests.support.batches import values

    [stream] = [s for s in state.streams.values() if s.partition == partition]
    log: dict[int, bytes] = {}
    for entry in stream.index:
        known = state.objects.get(entry.object)
        if known is None:
            raise Violation(f"object {entry.object} is named by the index but not known")
        path = wal.path_of(known.zone, state.domain, known.created_ms, entry.object)
        data = world.store.objects.get(path)
        if data is None:
            raise Violation(f"live object {path} is gone")
        wal.parse(data)
        batches = wal.batches_between(data, entry.position, entry.position + entry.length)
        found = values(join_patched(batches, entry.start))
        if [offset for offset, _ in found] != list(range(entry.start, entry.end)):
            raise Violation(f"entry {entry} holds {found}")
        log.update(found)
    return {offset: value for offset, value in log.items() if offset >= stream.log_start}


def _check_order(history: History, partition: int, log: dict[int, bytes], idempotent: set[int]) -> None:
    last: dict[int, int] = {}
    for offset in sorted(log):
        value = log[offset]
        if value not in history.sent:
            raise Violation(f"partition {partition} offset {offset} holds {value!r}, which nobody sent")
        where, producer, number = history.sent[value]
        if where != partition:
            raise Violation(f"{value!r} lies in partition {partition}")
        if producer in idempotent and number <= last.get(producer, -1):
            raise Violation(f"producer {producer}: {number} comes after {last[producer]} at offset {offset}")
        last[producer] = max(number, last.get(producer, -1))


def check_metadata(world: World, cluster: SimCluster, state: StreamsState) -> None:
    """Check a state that was read from the ledger, the brokers, and the store's objects against each other."""
    if cluster.failures:
        raise Violation(cluster.failures[0])
    report = Report()
    for stream in state.streams.values():
        check_stream(stream, report)
    check_references(state, report)
    if report.findings:
        raise Violation(str(report.findings[0]))
    image = state.image()
    for node, broker in cluster.brokers.items():
        if broker.node is None:
            raise Violation(f"broker {node} did not come back")
        for duty in broker.node.background.reports():
            if duty.error:
                raise Violation(f"broker {node}: duty {duty.name} died: {duty.error}")
        replica = broker.node.domains[Domain(1)]
        if replica.state.position == state.position and replica.state.image() != image:
            raise Violation(f"broker {node} and the ledger disagree at {state.position}")
    for path in world.store.objects:
        object_id = wal.id_of_path(path)
        if object_id is not None and state.objects.get(object_id) is None and state.is_fenced(object_id.epoch):
            raise Violation(f"{path} is an orphan that nobody removed")
