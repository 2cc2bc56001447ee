"""Every duty of the server, killed by a planted exception: the log, the health report, and what happens then."""

import asyncio
import importlib
import logging
import os
import pkgutil
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import headwater
from harness.virtual import SeededChance, VirtualClock, run
from headwater import background as background_module
from headwater.app import lifecycle
from headwater.app import process as broker_process
from headwater.app.urgency import URGENCY, Priority
from headwater.background import DUTIES, Background, DutyReport, OnDeath
from headwater.errors import DutyFailed
from headwater.gateway.load import Load
from headwater.ledger.bucket.ledger import BucketLedger
from headwater.ledger.etcd.ledger import EtcdLedger
from headwater.ledger.journal.ledger import JournalLedger
from headwater.ledger.oxia.ledger import OxiaLedger
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.objects.registers import MemoryRegisters
from headwater.query.holding import Holding
from headwater.security.tls import CERTIFICATES, Certificates
from headwater.settings.settings import Brownout, Groups, Housekeeping
from headwater.state.commands.base import Tick
from headwater.state.records import encode_record
from headwater.types import Epoch, Position
from tests.simulation.etcd_model import EtcdModel, ModelClient
from tests.simulation.oxia_model import OxiaModel
from tests.support.batches import batch
from tests.support.lake import Compaction, LakeWorld
from tests.support.link_world import ModelSource, copying_of, link
from tests.support.virtual_nodes import ONE, NodeWorld, send, topic, way_of

PROMISES = ("M7",)

for found in pkgutil.walk_packages(headwater.__path__, "headwater."):
    if "spark" not in found.name and not found.name.endswith("__main__"):
        importlib.import_module(found.name)

QUICK = {
    "housekeeping": Housekeeping(interval_ms=100),
    "groups": Groups(check_interval_ms=100),
    "brownout": Brownout(interval_ms=100),
}


def boom(*_: Any, **__: Any) -> NoReturn:
    """What is planted into a step of a duty."""
    raise RuntimeError("planted")


class Scene:
    """What a case may use."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.closing: list[Callable[[], Awaitable[None]]] = []

    async def node(self) -> Any:
        node = await NodeWorld().node(**QUICK)
        self.closing.append(node.background.close)
        return node

    async def compaction(self) -> Compaction:
        made = await LakeWorld(self.directory).compaction(interval_ms=100, lease_ms=300)
        self.closing.append(made.background.close)
        return made

    def background(self) -> Background:
        made = Background(VirtualClock())
        self.closing.append(made.close)
        return made


async def _follow(scene: Scene) -> Background:
    node = await scene.node()
    node.domains[ONE]._apply = boom
    await way_of(node).inner.append(ONE, encode_record(Epoch(0), 0, 0, 0, []))  # as another process does
    return node.background


async def _append(scene: Scene) -> Background:
    node = await scene.node()
    node.domains[ONE]._append_once = boom
    waiting = node.domains[ONE].enqueue([Tick()])
    waiting.add_done_callback(lambda done: done.exception())
    return node.background


async def _membership(scene: Scene) -> Background:
    node = await scene.node()
    node.membership._watch_peers = boom
    return node.background


async def _beats(scene: Scene) -> Background:
    node = await scene.node()
    way_of(node).beat = boom  # type: ignore[method-assign]
    return node.background


async def _marks(scene: Scene) -> Background:
    node = await scene.node()
    node.domains.marks.mark = boom
    return node.background


async def _writer(scene: Scene) -> Background:
    node = await scene.node()
    made = await topic(node)
    for writer in node.writers.all():
        writer._take = boom
    send(node, made.streams[0], batch([b"a"]))
    return node.background


async def _housekeeping(scene: Scene) -> Background:
    node = await scene.node()
    node.housekeeper.round = boom
    return node.background


async def _groups(scene: Scene) -> Background:
    node = await scene.node()
    node.broker.coordinator._expire = boom
    return node.background


async def _transactions(scene: Scene) -> Background:
    node = await scene.node()
    node.broker.transactions.round = boom
    return node.background


async def _pace(scene: Scene) -> Background:
    node = await scene.node()
    node.reporter.round = boom
    return node.background


async def _compaction(scene: Scene) -> Background:
    made = await scene.compaction()
    made.compactor.round = boom  # type: ignore[method-assign]
    made.compactor.start()
    return made.background


async def _lease(scene: Scene) -> Background:
    made = await scene.compaction()
    made.compactor.start()
    made.domain.state.lease = boom  # type: ignore[method-assign]
    return made.background


async def _urgency(scene: Scene) -> Background:
    background = scene.background()
    background.run(URGENCY, Priority(10, boom, boom, dict).run)
    return background


async def _table_follower(scene: Scene) -> Background:
    made = await scene.compaction()
    made.following.round = boom  # type: ignore[method-assign]
    made.following.start()
    return made.background


async def _letters(scene: Scene) -> Background:
    made = await scene.compaction()
    made.letters.round = boom  # type: ignore[method-assign]
    made.letters.start()
    return made.background


async def _holds(scene: Scene) -> Background:
    node = await scene.node()
    holding = Holding(node.domains)
    holding.renew = boom  # type: ignore[method-assign]
    holding.start()
    return node.background  # type: ignore[no-any-return]


async def _load(scene: Scene) -> Background:
    background, clock = scene.background(), VirtualClock()
    clock.monotonic = boom  # type: ignore[method-assign]
    Load(1_000, clock).start(background)
    return background


async def _links(scene: Scene) -> Background:
    node = await scene.node()
    copying = copying_of(node, ModelSource())
    copying.round = boom  # type: ignore[method-assign]
    copying.start()
    return node.background  # type: ignore[no-any-return]


async def _link(scene: Scene) -> Background:
    node, source = await scene.node(), ModelSource()
    source.open = boom  # type: ignore[method-assign]
    copying_of(node, source).start()
    await link(node, "t")
    return node.background  # type: ignore[no-any-return]


async def _first_link(scene: Scene) -> Background:
    class Planted:
        links = property(boom)

    background = scene.background()
    background.run(broker_process.LINKS, lambda: broker_process.tell_of_links(Planted()))  # type: ignore[arg-type]
    return background


async def _certificates(scene: Scene) -> Background:
    made, background = object.__new__(Certificates), scene.background()
    made.reload = boom  # type: ignore[method-assign]
    background.run(CERTIFICATES, lambda: made.watch(0.1), "PLAINTEXT")
    return background


def _watch_until_closed(scene: Scene, ledger: Any) -> None:
    watching = asyncio.create_task(ledger.watch(ONE, Position(0)))

    async def close() -> None:
        watching.cancel()
        await ledger.close()

    scene.closing.append(close)


async def _watched(scene: Scene, ledger: Any, *, plant: Callable[[], None]) -> None:
    """A ledger whose watch is at work, then the plant, then a record of another process."""
    _watch_until_closed(scene, ledger)
    await asyncio.sleep(1)
    plant()


async def _etcd(scene: Scene) -> Background:
    background, model = scene.background(), EtcdModel()
    ledger = EtcdLedger(ModelClient(model), "x", SeededChance(), background=background)
    await _watched(scene, ledger, plant=lambda: setattr(ledger, "_take", boom))
    await EtcdLedger(ModelClient(model), "x", SeededChance(1)).append(ONE, b"a")
    return background


async def _oxia(scene: Scene) -> Background:
    background, model = scene.background(), OxiaModel(shards=1)
    ledger = OxiaLedger(model.open(), background=background)
    await _watched(scene, ledger, plant=lambda: setattr(ledger._place(ONE), "heard", boom))
    await OxiaLedger(model.open()).append(ONE, b"a")
    return background


async def _bucket(scene: Scene) -> Background:
    background = scene.background()
    ledger = BucketLedger(MemoryRegisters(), clock=VirtualClock(), chance=SeededChance(), background=background)
    await _watched(scene, ledger, plant=lambda: setattr(ledger._rings[ONE], "look", boom))
    return background


async def _sqlite(scene: Scene) -> Background:
    background = Background()
    ledger = SqliteLedger(scene.directory / "ledger.db", background)
    ledger._data_version = boom  # type: ignore[method-assign]
    _watch_until_closed(scene, ledger)
    return background


async def _journal(scene: Scene) -> Background:
    background = Background()
    ledger = JournalLedger(scene.directory / "journal", background, file_bytes=1 << 20)
    ledger._ends = boom  # type: ignore[method-assign]
    _watch_until_closed(scene, ledger)
    return background


async def _parent(scene: Scene) -> Background:
    stop = asyncio.Event()
    background = lifecycle.supervised_by(stop)
    receiving, sending = os.pipe()
    os.write(sending, b"secret\n")
    before, sys.stdin = sys.stdin, os.fdopen(receiving)
    try:
        assert await lifecycle.watch_parent(stop, background) == "secret"
    finally:
        sys.stdin = before
        os.close(sending)
    scene.closing.append(background.close)
    return background


CASES: dict[str, Callable[[Scene], Awaitable[Background]]] = {
    "follow": _follow,
    "append": _append,
    "membership": _membership,
    "beats": _beats,
    "marks": _marks,
    "writer": _writer,
    "housekeeping": _housekeeping,
    "groups": _groups,
    "transactions": _transactions,
    "pace-reporter": _pace,
    "compaction": _compaction,
    "compaction-lease": _lease,
    "urgency": _urgency,
    "table-follower": _table_follower,
    "dead-letters": _letters,
    "load": _load,
    "holds": _holds,
    "links": _links,
    "link": _link,
    "first-link": _first_link,
    "certificates": _certificates,
    "etcd-watch": _etcd,
    "oxia-notices": _oxia,
    "ledger-poll": _bucket,
    "ledger-changes": _sqlite,
    "journal-changes": _journal,
    "parent": _parent,
}
REAL_TIME = {"ledger-changes", "journal-changes", "parent"}
"""They use threads and pipes."""


def test_every_duty_has_a_case() -> None:
    assert set(CASES) == set(DUTIES)


def test_every_duty_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guides" / "operation.md").read_text()
    rows = set(re.findall(r"^\| `([a-z-]+)` \| (.+) \| (.+) \|$", text, re.MULTILINE))
    then = {OnDeath.END: "the process ends", OnDeath.RESTART: "it is restarted"}
    assert rows == {(duty.name, duty.purpose, then[duty.on_death]) for duty in DUTIES.values()}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_planted_exception(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    duty, failures = DUTIES[name], list[DutyFailed]()
    if name in REAL_TIME:
        monkeypatch.setattr(background_module, "RESTART_SECONDS", 0.01)
    if name == "parent":
        monkeypatch.setattr(asyncio.StreamReader, "read", boom)

    async def story() -> None:
        scene = Scene(tmp_path)
        try:
            background = await CASES[name](scene)
            background.on_failed = failures.append
            died = await _until(lambda: [r for r in _reports(background, name) if r.error])
            assert died[0].error == "RuntimeError: planted" and died[0].at_ms
            if duty.on_death is OnDeath.END:
                assert {report.state for report in died} == {"failed"}
                assert background.status == "unhealthy" and background.failure is not None
                assert name in str(background.failure) and failures
            else:
                assert background.status in ("degraded", "healthy") and background.failure is None
                await _until(lambda: [r for r in _reports(background, name) if r.restarts >= 2])
                assert not failures
        finally:
            for close in scene.closing:
                await close()

    asyncio.run(story()) if name in REAL_TIME else run(story())
    logged = [record for record in caplog.records if record.getMessage() == "a duty died"]
    [first, *_] = [record for record in logged if record.duty.startswith(name)]  # type: ignore[attr-defined]
    assert first.levelno == logging.ERROR and first.then == duty.on_death.value  # type: ignore[attr-defined]
    assert first.exc_info and "planted" in caplog.text


def _reports(background: Background, name: str) -> list[DutyReport]:
    """Those of one kind; `compaction-lease` is not of the kind `compaction`."""
    others = [other for other in DUTIES if other.startswith(name) and other != name]
    found = [report for report in background.reports() if report.name.startswith(name)]
    return [report for report in found if not report.name.startswith(tuple(others))]


async def _until(look: Callable[[], list[DutyReport]]) -> list[DutyReport]:
    while not (found := look()):
        await asyncio.sleep(0.01)
    return found
