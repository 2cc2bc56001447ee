"""Tables whose columns grow while compactors settle, merge, decode the past again, die and lose their leases.

Every node has a compactor, with the product's own code. Values are JSON with ever new fields, and some are no JSON. The
topic's schema is switched on at some time, so that earlier files are rewritten. Records that are no JSON become dead
letters. In the end an auditor reads every file: its log columns are what was appended, their digest is that of the
ledger, its typed columns are what the JSON says, and no id of a column is used twice; each record that is no JSON is in
the dead-letter topic, once. A command that `apply` refuses as invalid is a violation, too.
"""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any

from harness.loop import run_as
from headwater.app.node import Node
from headwater.configs.topics import DLQ_TOPIC, JSON_SCHEMA, VALUE_SCHEMA
from headwater.errors import HeadwaterError
from headwater.lake.compactor import Compactor
from headwater.lake.letters import PREFIX, Letters
from headwater.lake.spark.executor import perform
from headwater.lake.tasks import Task, TaskFacts
from headwater.log.batch import check_batch
from headwater.log.segment.digest import MASK, digest
from headwater.log.segment.write import read_pieces
from headwater.log.write.part import Outcome, Part
from headwater.replica.checkpoint import load_state, replay
from headwater.schemas.conform import arrow_fields
from headwater.settings.settings import Lake, Settings
from headwater.state.cluster.domain import Topic
from headwater.state.commands.cluster import AlterConfigs
from headwater.state.commands.columns import AddColumns, WantDecoded, walk
from headwater.state.commands.tables import Replace, Settle
from headwater.state.records import Command
from headwater.state.results import Reason, Refused, Result, Verdict
from headwater.state.streams.state import StreamsState
from headwater.state.streams.tables import DataFile, TopicTable
from headwater.types import Domain
from tests.simulation.clients import TOPIC, Client, History, Violation, create_topic
from tests.simulation.cluster import EPOCH_MS, SimBroker, SimCluster
from tests.simulation.run import Scene as Played
from tests.simulation.run import check_metadata, heal, until_done
from tests.simulation.stores import World
from tests.support.batches import Rec, batch
from tests.support.virtual_nodes import LAX, One

ONE = Domain(1)
BUSY_SECONDS = 8.0
QUIET_SECONDS = 28.0
"""Time for fences, settling and rewrites, also after the longest pause."""
LAKE = Lake(freshness_ms=1, merge_files=3, lease_ms=2_000, orphan_interval_ms=1_000)
LETTERS = "letters"
"""The name of the dead-letter topic."""
JUDGED = (AddColumns, Settle, Replace)


class Settler:
    """A compactor in one life of a node."""

    def __init__(self, setting: Setting, broker: SimBroker, node: Node, rng: random.Random) -> None:
        self._setting = setting
        self._rng = rng
        self._node = node
        self._compactor = Compactor(node.domains, self._run_job, LAKE, slots=1)
        self._letters = Letters(node.domains, node.writers, self._compactor.lease, Settings(lake=LAKE))
        replica = node.domains[ONE]
        self._submit = replica.submit
        replica.submit = self._watched_submit  # type: ignore[method-assign]
        run_as(broker.life, self._watched(self._compact()))

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
            self._setting.cluster.failures.append(f"{type(error).__name__}: {error}")

    async def _watched_submit(self, commands: Sequence[Command]) -> list[Result]:
        results = await self._submit(commands)
        for command, result in zip(commands, results, strict=True):
            if isinstance(command, JUDGED) and isinstance(result, Refused) and result.reason is Reason.INVALID:
                self._setting.cluster.failures.append(f"{type(command).__name__} is refused: {result.detail}")
        return results

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        return [await perform(self._node.domains.store, task) for task in tasks]

    async def _compact(self) -> None:
        while self._setting.acting:
            await asyncio.sleep(self._rng.random() * 0.8)
            await self._compactor.round()
            await self._letters.round()


class Setting:
    """One seed's cluster, and who acts in it."""

    def __init__(self, world: World, cluster: SimCluster, rng: random.Random) -> None:
        self.world = world
        self.cluster = cluster
        self.rng = rng
        self.busy = self.acting = True
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.bad: set[tuple[int, int]] = set()
        """Partition and offset of the records that could not be decoded, as the auditor has found them."""
        self._known: set[Node] = set()

    def chance(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    async def state(self) -> StreamsState:
        """The state at the end of the ledger."""
        state = self.cluster.make_streams(ONE)
        await load_state(self.world.verdict_ledger, self.world.store, state)
        await replay(self.world.verdict_ledger, state)
        return state

    async def look_on(self) -> None:
        """Give nodes that have started a compactor, and let failures through."""
        while self.acting:
            await asyncio.sleep(0.05)
            for broker in self.cluster.brokers.values():
                if broker.node is not None and broker.node not in self._known:
                    self._known.add(broker.node)
                    Settler(self, broker, broker.node, self.chance())
            if self.cluster.failures:
                raise Violation(self.cluster.failures[0])

    # --- who acts --------------------------------------------------------------------------------------

    async def write(self) -> None:
        rng = self.chance()
        while self.busy:
            await asyncio.sleep(rng.random() * 0.4)
            self._somewhere(rng, self._append)

    def _somewhere(self, rng: random.Random, act: Any) -> None:
        serving = self.cluster.serving()
        broker = self.cluster.brokers[rng.choice(serving)] if serving else None
        if broker is not None and broker.node is not None:
            run_as(broker.life, act(broker.node, rng))

    async def _append(self, node: Node, rng: random.Random) -> None:
        topic = node.domains.cluster.state.names.get(TOPIC)
        streams = [one for one in topic.streams if one in node.domains[ONE].state.streams] if topic is not None else []
        if not streams:
            return
        stamp = EPOCH_MS + int(self.world.loop.now * 1_000)
        values = [self._value(rng) for _ in range(rng.randint(1, 3))]
        self.sent.update(values)
        data = check_batch(batch([Rec(value, timestamp=stamp) for value in values]), LAX, stamp)
        caller = One()
        node.writers.of(ONE, "latency").append(Part(rng.choice(streams), data, caller, 0))
        outcome = await caller.done
        if isinstance(outcome, Outcome) and outcome.verdict is Verdict.ACCEPTED:
            self.acknowledged.update(values)

    def _value(self, rng: random.Random) -> bytes:
        """JSON whose fields become more with time; sometimes none."""
        if rng.random() < 0.05:
            return b"{%d" % rng.getrandbits(48)
        fields = int(self.world.loop.now) + 2
        found: dict[str, Any] = {"id": rng.getrandbits(48)}
        for i in rng.sample(range(fields), rng.randint(0, min(fields, 3))):
            found[f"f{i}"] = "x" * rng.randint(0, 5) if i % 2 else rng.randint(0, 99)
        return json.dumps(found).encode()

    async def switch(self) -> None:
        """Switch decoding on at some time; ask for it again later."""
        rng = self.chance()
        await asyncio.sleep(rng.random() * BUSY_SECONDS / 2)
        while True:
            self._somewhere(rng, self._switch)
            await asyncio.sleep(0.5 + rng.random() * 2)

    async def _switch(self, node: Node, rng: random.Random) -> None:
        try:
            topic = node.domains.cluster.state.names.get(TOPIC)
            if topic is None:
                return
            if topic.configs.get(VALUE_SCHEMA) != JSON_SCHEMA:
                configs = {VALUE_SCHEMA: JSON_SCHEMA, DLQ_TOPIC: LETTERS}
                await node.domains.cluster.submit([AlterConfigs(topic.id, configs, ())])
            else:
                await node.domains[ONE].submit([WantDecoded(topic.id, rng.random() < 0.5)])
        except HeadwaterError:
            return

    async def misfortunes(self) -> None:
        rng = self.chance()
        while True:
            await asyncio.sleep(rng.expovariate(1 / 1.5))
            node, what = rng.choice(list(self.cluster.brokers)), rng.random()
            if not self.cluster.befall(node, what, rng):
                for other in self.cluster.brokers:
                    self.cluster.restart(other)

    # --- the end ---------------------------------------------------------------------------------------

    async def verdict(self) -> None:
        state = await self.state()
        check_metadata(self.world, self.cluster, state)
        topics = self._topics()
        data, letters = topics[TOPIC], topics[LETTERS]
        if data.id not in state.tables:
            raise Violation("nothing is settled")
        found = self._audit(state, data.id, state.tables[data.id])
        if len(set(found)) < len(found):
            raise Violation("a record is in two files")
        if not self.acknowledged <= set(found) <= self.sent:
            lost = len(self.acknowledged - set(found))
            heads = [(stream.settled, stream.stable) for stream in state.streams.values()]
            raise Violation(f"{lost} of {len(self.acknowledged)} records are in no file, or are changed: {heads}")
        self._audit_letters(state, letters)
        self.cluster.note(f"{len(found)} records, {len(self.bad)} of them are letters")

    def _topics(self) -> dict[str, Topic]:
        """The topics by name, as a node that runs knows them."""
        for broker in self.cluster.brokers.values():
            if broker.node is not None and LETTERS in broker.node.domains.cluster.state.names:
                return broker.node.domains.cluster.state.names
        raise Violation("no node runs in the end")

    def _audit_letters(self, state: StreamsState, letters: Topic) -> None:
        """Each record that could not be decoded is in the dead-letter topic once, and nothing else is."""
        table = state.tables.get(letters.id)
        there: Counter[tuple[int, int]] = Counter()
        for file in table.live() if table is not None else ():
            assert table is not None
            for piece in read_pieces(self.world.store.objects[f"{table.root}/{file.name}"], file.footer_checksum):
                for row in (row for rows in piece.batches() for row in rows.to_pylist()):
                    said = {header["key"].removeprefix(PREFIX): header["value"] for header in row["headers"]}
                    there[int(said["partition"]), int(said["offset"])] += 1
        twice = [place for place, count in there.items() if count > 1]
        if twice:
            raise Violation(f"a letter is written twice: {twice}")
        if set(there) != self.bad:
            missing, more = self.bad - set(there), set(there) - self.bad
            raise Violation(f"of {len(self.bad)} letters {missing} are missing, and {more} are too many")

    def _audit(self, state: StreamsState, topic: uuid.UUID, table: TopicTable) -> list[bytes]:
        typed = state.typed.get(topic)
        if typed is None:
            raise Violation(f"{table.root} has no typed columns")
        ids = [column.id for column in walk(typed.columns.newest)]
        if len(set(ids)) < len(ids):
            raise Violation(f"{table.root} uses an id twice")
        if list(typed.undecoded(table.live())):
            raise Violation(f"{table.root} has files that are not decoded")
        fields = arrow_fields(typed.columns.newest)
        values = []
        for file in table.live():
            values += self._audit_file(table, file, typed.files[file.number].digest, fields)
        return values

    def _audit_file(self, table: TopicTable, file: DataFile, expected: int, fields: Sequence[Any]) -> list[bytes]:
        data, total, values = self.world.store.objects[f"{table.root}/{file.name}"], 0, []
        for piece in read_pieces(data, file.footer_checksum):
            for rows in piece.batches(fields):
                total += digest(rows)
                for row in rows.to_pylist():
                    values.append(row["value"])
                    self._audit_row(file, row)
        if total & MASK != expected:
            raise Violation(f"the rows of {file.name} do not have the digest of the ledger")
        return values

    def _audit_row(self, file: DataFile, row: dict[str, Any]) -> None:
        try:
            wanted = json.loads(row["value"])
        except ValueError:
            wanted = None
        given = row.get("value_data")
        there = {name: value for name, value in (given or {}).items() if value is not None}
        if there != (wanted or {}) or (wanted is None) != (row["decode_error"] is not None):
            raise Violation(f"{file.name}, offset {row['offset']}: {there} instead of {wanted}, {row['decode_error']}")
        if wanted is None:
            self.bad.add((row["partition"], row["offset"]))


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    cluster.reply_lost = rng.choice([0.0, 0.02])
    cluster.start()
    admin = Client(cluster, random.Random(rng.getrandbits(64)), history)
    await create_topic(admin, 2)
    await create_topic(admin, 1, LETTERS)
    setting = Setting(world, cluster, rng)
    start = asyncio.create_task
    chaos, watching, switching = start(setting.misfortunes()), start(setting.look_on()), start(setting.switch())
    writing = start(setting.write())
    await until_done([start(asyncio.sleep(BUSY_SECONDS))], [writing, watching, chaos, switching])
    chaos.cancel()
    heal(world, cluster)
    setting.busy = False
    await until_done([writing], [watching, switching])
    await until_done([start(asyncio.sleep(QUIET_SECONDS / 2))], [watching, switching])
    switching.cancel()
    await until_done([start(asyncio.sleep(QUIET_SECONDS / 2))], [watching])
    setting.acting = False
    await until_done([watching], [])
    await asyncio.sleep(2)  # until the last rounds are over
    await setting.verdict()
    history.ack(0, 0, list(setting.acknowledged))


TYPED = Played(_story, brokers=(1, 2, 3))
