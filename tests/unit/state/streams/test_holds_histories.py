"""Over histories of any kind, what a query reads is never ripe, and no version is held that lacks a file."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.state.commands.base import Fence
from headwater.state.commands.holds import HoldVersion, MoveHold, ReleaseVersions, TakeHold
from headwater.state.commands.streams import DropStreams, ForgetObjects
from headwater.state.commands.tables import Follow, ForgetFiles
from headwater.state.results import Done, Refused
from headwater.types import WalId
from tests.support.scribe import TOPIC
from tests.unit.state.streams.test_holds import COMPACTOR, STREAM, WRITER, Story

PROMISES = ("Q2",)

FOREVER = 1 << 60


@dataclass(eq=False)
class Query:
    """A query, and what it reads."""

    epoch: int
    begun_ms: int
    files: frozenset[int]
    objects: frozenset[WalId]


@dataclass
class History:
    """A history of one topic, and gateways that come and go."""

    story: Story = field(default_factory=Story)
    queries: list[Query] = field(default_factory=list)
    gateways: list[int] = field(default_factory=lambda: [20, 21])
    epochs: int = 21
    files: dict[int, frozenset[int]] = field(default_factory=lambda: {0: frozenset()})
    """Of every version."""
    once_ripe: set[int] = field(default_factory=set)
    """Files that a deleter may have begun to delete."""
    location: str = ""

    # --- what happens ----------------------------------------------------------------------------------

    def step(self, what: str, number: int) -> None:
        story, table = self.story, self.story.state.tables.get(TOPIC)
        gateway = self.gateways[number % len(self.gateways)]
        dropped = STREAM not in story.state.streams
        if what == "wait":
            story.pass_time(number % 3)
        elif what == "settle" and not dropped:
            story.settle()
        elif what == "merge" and table is not None and not dropped:
            live = [file.number for file in table.live()]
            if len(live) > 1:
                story.merge(*live)
        elif what == "follow" and table is not None and not dropped:
            at = table.last_sequence
            known = table.followers.get("delta")
            oldest = max(known.oldest if known else 0, at - number % 4) if known else at
            result = story.do(COMPACTOR, Follow(story.lease, TOPIC, "delta", self.location, f"{at}", at, oldest))
            assert result == Done()
            self.location = f"{at}"
        elif what == "collect" and table is not None:
            story.do(COMPACTOR, ForgetFiles(story.lease, TOPIC, list(table.files)))
            dead = [(name.epoch, name.sequence) for name, _ in story.state.objects.dead()]
            story.do(COMPACTOR, ForgetObjects(story.keeping, dead))
        elif what == "drop" and number == 0:
            story.do(WRITER, DropStreams((STREAM,)))
        else:
            self._of_gateway(what, gateway, number)
        self._note()

    def _of_gateway(self, what: str, gateway: int, number: int) -> None:
        story = self.story
        hold = story.state.held.get(gateway)
        mine = [query for query in self.queries if query.epoch == gateway]
        if what == "begin":
            if hold is None:
                story.number(gateway, TakeHold())
            self._begin(gateway)
        elif what == "end" and mine:
            self.queries.remove(mine[number % len(mine)])
        elif what == "renew" and hold is not None:
            now = story.state.clock_ms
            assert isinstance(story.do(gateway, MoveHold(min((q.begun_ms for q in mine), default=now))), Done)
        elif what == "pin" and hold is not None and self.files:
            self._pin(gateway, max(self.files) - number % 6)
        elif what == "release" and hold is not None:
            story.do(gateway, ReleaseVersions(list(hold.versions)[:1]))
        elif what == "fence":
            story.do(COMPACTOR, Fence(gateway))
            self.queries = [query for query in self.queries if query.epoch != gateway]
            self.epochs += 1
            self.gateways[self.gateways.index(gateway)] = self.epochs

    def _begin(self, gateway: int) -> None:
        state = self.story.state
        table = state.tables.get(TOPIC)
        shown = () if table is None or table.dropped else table.live()
        objects = frozenset(known.id for known in state.objects if known.references)
        files = frozenset(file.number for file in shown)
        self.queries.append(Query(gateway, state.clock_ms, files, objects))

    def _pin(self, gateway: int, version: int) -> None:
        hold = self.story.state.held.get(gateway)
        assert hold is not None
        known = (TOPIC, version) in hold.versions
        result = self.story.do(gateway, HoldVersion(TOPIC, version))
        if not known and not isinstance(result, Refused):
            assert not self.files[version] & self.once_ripe, "a deleter may be at work"

    # --- what must hold --------------------------------------------------------------------------------

    def _note(self) -> None:
        state = self.story.state
        table = state.tables.get(TOPIC)
        ripe = {file.number for file in state.ripe(table)} if table is not None else set[int]()
        self.once_ripe |= ripe
        if table is not None and not table.dropped and table.last_sequence not in self.files:
            self.files[table.last_sequence] = frozenset(file.number for file in table.live())
        known = set(table.files) if table is not None else set[int]()
        wanted = [query.files for query in self.queries]
        wanted += [self.files[version] for _, hold in state.held for _, version in hold.versions]
        for files in wanted:
            assert files <= known - ripe, f"{files} are read, {ripe} may be deleted"
        objects = frozenset[WalId]().union(*(query.objects for query in self.queries))
        assert not objects & set(state.ripe_objects(FOREVER))
        assert all(state.objects.get(name) is not None for name in objects)


STEPS = ["wait", "settle", "settle", "merge", "follow", "collect", "drop", "begin", "begin", "end", "renew", "renew",
         "pin", "release", "fence"]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=60))
@example([("settle", 0), ("settle", 0), ("merge", 0), ("begin", 1), ("pin", 1)])
def test_what_is_read_stays(steps: list[tuple[str, int]]) -> None:
    history = History()
    for what, number in steps:
        history.step(what, number)


def test_a_long_history() -> None:
    """One that does all of it many times, so that no step is left out by chance."""
    history = History()
    for turn in range(600):
        what = STEPS[(turn * turn + turn // 7) % len(STEPS)]
        if what != "drop":
            history.step(what, turn % 12)
    assert history.once_ripe and len(history.files) > 20
