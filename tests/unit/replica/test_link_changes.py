"""Links by an operator's orders: which links make sense, and what pausing, resuming, promoting and deleting mean."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from headwater.app.core import Core
from headwater.clock import SystemChance
from headwater.errors import BadInput, ConfigError, Conflict, Exists, NotAllowed, NotFound
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.replica.link_changes import LinkChanges, LinkOptions, check_spec, options_of
from headwater.replica.linked import facts_of, lines_of
from headwater.replica.links import Linking
from headwater.replica.topics import Topics
from headwater.settings.settings import Links, Settings
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.links import LinkPhase, LinkSpec
from headwater.state.streams.stream import Stream
from headwater.types import Domain
from tests.support.secured import MovingClock

SPEC = LinkSpec(
    name="old",
    bootstrap=("127.0.0.1:9192", "[::1]:9192"),
    security={"security.protocol": "SASL_SSL", "sasl.username": "ann", "sasl.password.file": "/p"},
    topics=("orders",),
    patterns=("shop[.].*",),
    groups=("shop-.*",),
    options={"configs": "true"},
    paused=False,
)
SECRET = "correct horse"


@dataclass
class World:
    """A cluster without processes, and an operator."""

    core: Core
    linking: Linking
    changes: LinkChanges

    @property
    def state(self) -> ClusterState:
        return self.core.cluster.state

    async def linked(self, *names: str) -> None:
        """The link, and topics that it copies."""
        await self.changes.create(SPEC)
        for name in names:
            await self.linking.create_topic("old", name, name, uuid.uuid4(), 2, {})

    def phases(self) -> dict[str, LinkPhase]:
        return {self.state.topics[found.topic].name: found.phase for found in self.state.links.of("old")}

    def streams(self, name: str) -> list[Stream]:
        topic = self.state.names[name]
        return [self.core.domains[Domain(topic.domain)].state.streams[stream] for stream in topic.streams]


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    chance = SystemChance()
    core = Core(Settings(), MemoryLedger(), MemoryStore(), MovingClock(), chance)
    await core.start()
    linking = Linking(core.cluster, core.domains, Topics(core.cluster, core.domains, chance), chance)
    try:
        yield World(core, linking, LinkChanges.of(core.domains, Links(secret_directories=("/p",))))
    finally:
        await core.stop()


def test_a_link_that_makes_sense() -> None:
    check_spec(SPEC)
    check_spec(msgspec.structs.replace(SPEC, topics=(), groups=(), security={}, options={}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "a/b"}, "name"),
        ({"name": ""}, "name"),
        ({"bootstrap": ()}, "addresses"),
        ({"bootstrap": ("kafka",)}, "HOST:PORT"),
        ({"bootstrap": (":9092",)}, "HOST:PORT"),
        ({"bootstrap": ("kafka:0",)}, "valid port"),
        ({"bootstrap": ("kafka:65536",)}, "valid port"),
        ({"bootstrap": ("kafka:" + "9" * 200,)}, "valid port"),
        ({"bootstrap": ("kafka:²",)}, "HOST:PORT"),
        ({"topics": (), "patterns": ()}, "at least one topic"),
        ({"topics": ("a b",)}, "Topic name is invalid"),
        ({"patterns": ("(",)}, "the pattern '\\('"),
        ({"groups": ("[",)}, "the group '\\['"),
        ({"options": {"speed": "fast"}}, "'speed' is not an option of a link: accept.gap, configs"),
        ({"options": {"accept.gap": "yes"}}, "true or false"),
        ({"security": {"sasl.password": SECRET}}, "secret"),
        ({"security": {"sasl.kerberos.service.name": SECRET}}, "is none of"),
    ],
)
def test_a_link_that_makes_no_sense_is_refused_and_not_stored(changes: dict[str, Any], words: str) -> None:
    spec = msgspec.structs.replace(SPEC, **changes)
    with pytest.raises(BadInput, match=words) as refusal:
        check_spec(spec)
    assert SECRET not in str(refusal.value)

    async def story() -> None:
        async with world() as here:
            with pytest.raises(BadInput):
                await here.changes.create(spec)
            with pytest.raises(BadInput):
                await here.changes.ensure(spec)
            assert not here.state.links.links

    asyncio.run(story())


@pytest.mark.parametrize(
    "security",
    [
        {**SPEC.security, "sasl.password.file": "/proc/self/environ"},
        {**SPEC.security, "sasl.password.file": "/p/../etc/shadow"},
        {**SPEC.security, "ssl.ca.location": "/etc/shadow"},
        {"security.protocol": "SASL_SSL", "sasl.username": "ann", "sasl.password.env": "AWS_SECRET_ACCESS_KEY"},
    ],
)
def test_a_link_to_what_is_not_listed_is_refused_and_not_stored(security: dict[str, str]) -> None:
    spec = msgspec.structs.replace(SPEC, security=security)
    check_spec(spec)

    async def story() -> None:
        async with world() as here:
            for put in (here.changes.create, here.changes.ensure):
                with pytest.raises(NotAllowed, match=r"links\.secret_"):
                    await put(spec)
            assert not here.state.links.links
            before = await here.changes.create(SPEC)
            with pytest.raises(NotAllowed, match=r"links\.secret_"):
                await here.changes.ensure(spec)
            assert here.state.links.links["old"] == before

    asyncio.run(story())


def test_options_have_names_and_defaults() -> None:
    assert options_of({}) == LinkOptions(accept_gap=False, configs=False)
    assert options_of({"accept.gap": "true", "configs": "false"}) == LinkOptions(accept_gap=True)
    with pytest.raises(ConfigError):
        options_of({"accept_gap": "true"})


def test_a_name_is_taken_once_and_ensure_changes_the_link() -> None:
    async def story() -> None:
        async with world() as here:
            first = await here.changes.create(SPEC)
            with pytest.raises(Exists):
                await here.changes.create(SPEC)
            assert await here.changes.ensure(SPEC) == first
            wider = msgspec.structs.replace(SPEC, topics=("orders", "payments"))
            assert (await here.changes.ensure(wider)).spec == wider
            assert [line.name for line in lines_of(here.state)] == ["old"]

    asyncio.run(story())


def test_a_whole_link_is_paused_and_resumed() -> None:
    async def story() -> None:
        async with world() as here:
            await here.linked("orders")
            await here.changes.pause("old")
            await here.changes.pause("old")
            assert facts_of(here.state, here.core.domains, "old").state == "paused"
            assert here.phases() == {"orders": LinkPhase.COPYING}
            await here.changes.resume("old")
            assert facts_of(here.state, here.core.domains, "old").state == "copying"

    asyncio.run(story())


def test_single_topics_are_paused_and_resumed_under_new_generations() -> None:
    async def story() -> None:
        async with world() as here:
            await here.linked("orders", "payments")
            before = here.streams("orders")[0].mirror.generation
            await here.changes.pause("old", ["orders"])
            assert here.phases() == {"orders": LinkPhase.PAUSED, "payments": LinkPhase.COPYING}
            paused = here.streams("orders")[0].mirror
            assert paused.on and paused.generation > before, "what copied before is cut off; producers stay out"
            [line, _] = facts_of(here.state, here.core.domains, "old").linked
            assert (line.topic, line.state, line.generation) == ("orders", "paused", paused.generation)
            assert "operator" in line.reason
            await here.changes.resume("old", ["orders"])
            assert here.phases() == dict.fromkeys(("orders", "payments"), LinkPhase.COPYING)
            assert here.streams("orders")[1].mirror.generation > paused.generation

    asyncio.run(story())


def test_what_has_stopped_goes_on_and_may_accept_a_gap() -> None:
    async def story() -> None:
        async with world() as here:
            await here.linked("orders")
            [found] = here.state.links.of("old")
            await here.linking.change(found, LinkPhase.STOPPED, "the source was truncated")
            [line] = lines_of(here.state)
            assert (line.linked, line.stopped) == (1, 1)
            [told] = facts_of(here.state, here.core.domains, "old").linked
            assert (told.state, told.reason) == ("stopped", "the source was truncated")
            await here.changes.resume("old", accept_gap=True)
            facts = facts_of(here.state, here.core.domains, "old")
            assert facts.linked[0].state == "copying" and facts.linked[0].reason == ""
            assert facts.options == {"configs": "true", "accept.gap": "true"}

    asyncio.run(story())


def test_promoted_topics_take_records_and_only_then_the_link_can_be_deleted() -> None:
    async def story() -> None:
        async with world() as here:
            await here.linked("orders", "payments")
            await here.changes.promote("old", ["orders"], force=True)
            assert not any(stream.mirror.on for stream in here.streams("orders"))
            assert all(stream.mirror.on for stream in here.streams("payments"))
            with pytest.raises(Conflict, match="1 topics"):
                await here.changes.delete("old")
            await here.changes.resume("old")
            assert here.phases()["orders"] is LinkPhase.PROMOTED, "only a topic that is named goes back"
            await here.changes.promote("old", force=True)
            await here.changes.promote("old", force=True)
            await here.changes.delete("old")
            assert not here.state.links.links and not here.state.links.topics
            assert set(here.state.names) == {"orders", "payments"}

    asyncio.run(story())


def test_a_promoted_topic_goes_back_while_nothing_was_written() -> None:
    async def story() -> None:
        async with world() as here:
            await here.linked("orders")
            await here.changes.promote("old", force=True)
            await here.changes.resume("old", ["orders"])
            assert here.phases() == {"orders": LinkPhase.COPYING}
            assert all(stream.mirror.on for stream in here.streams("orders"))

    asyncio.run(story())


def test_a_promotion_leaves_its_last_step_to_a_link_process() -> None:
    """It copies the offsets of groups. Until then nobody writes, and the operator can take it back."""

    async def story() -> None:
        async with world() as here:
            await here.linked("orders")
            before = here.streams("orders")[0].mirror.generation
            await here.changes.promote("old")
            await here.changes.promote("old")
            mirror = here.streams("orders")[0].mirror
            assert here.phases() == {"orders": LinkPhase.PROMOTING}
            assert mirror.on and mirror.generation == before + 1
            assert not await here.changes.is_promoted("old")
            assert "orders is promoting" in here.changes.promotion_words("old")
            await here.changes.resume("old")
            assert here.phases() == {"orders": LinkPhase.COPYING}
            await here.changes.promote("old")
            [found] = here.state.links.of("old")
            await here.linking.change(found, LinkPhase.PROMOTED)
            assert await here.changes.is_promoted("old")

    asyncio.run(story())


def test_a_link_without_groups_is_promoted_at_once() -> None:
    async def story() -> None:
        async with world() as here:
            await here.linked("orders")
            await here.changes.ensure(msgspec.structs.replace(SPEC, groups=()))
            await here.changes.promote("old")
            assert await here.changes.is_promoted("old")

    asyncio.run(story())


def test_a_promotion_that_waits_for_the_source() -> None:
    """The topic stays a copy until the source's end is reached. It needs a link that copies."""

    async def story() -> None:
        async with world() as here:
            await here.linked("orders", "payments")
            await here.changes.promote("old", ["orders"], finish=True)
            assert here.phases() == {"orders": LinkPhase.FINISHING, "payments": LinkPhase.COPYING}
            await here.changes.pause("old", ["payments"])
            with pytest.raises(Conflict, match="'payments' is paused: resume it"):
                await here.changes.promote("old", finish=True)
            await here.changes.resume("old")
            assert here.phases() == dict.fromkeys(("orders", "payments"), LinkPhase.COPYING)
            await here.changes.pause("old")
            with pytest.raises(Conflict, match="link 'old' is paused"):
                await here.changes.promote("old", finish=True)
            with pytest.raises(BadInput, match="is forced"):
                await here.changes.promote("old", finish=True, force=True)
            assert here.phases() == dict.fromkeys(("orders", "payments"), LinkPhase.COPYING)

    asyncio.run(story())


def test_the_lag_is_known_when_all_partitions_were_seen() -> None:
    async def story() -> None:
        async with world() as here:
            await here.linked("orders")
            [found] = here.state.links.of("old")
            [line] = facts_of(here.state, here.core.domains, "old").linked
            assert (line.source_ends, line.source_ends_ms, line.lag) == ([], None, None)
            await here.linking.note_ends({found: [(1, 7)]})
            [line] = facts_of(here.state, here.core.domains, "old").linked
            assert (line.source_ends, line.lag) == ([None, 7], None) and line.source_ends_ms is not None
            await here.linking.note_ends({found: [(0, 3)]})
            [line] = facts_of(here.state, here.core.domains, "old").linked
            assert (line.source_ends, line.lag) == ([3, 7], 10)
            await here.changes.promote("old", force=True)
            [line] = facts_of(here.state, here.core.domains, "old").linked
            assert (line.source_ends, line.lag) == ([], None)

    asyncio.run(story())


def test_a_link_and_a_topic_that_are_not_there() -> None:
    async def story() -> None:
        async with world() as here:
            for order in (here.changes.pause, here.changes.resume, here.changes.promote, here.changes.delete):
                with pytest.raises(NotFound, match="no link 'old'"):
                    await order("old")
            with pytest.raises(NotFound):
                facts_of(here.state, here.core.domains, "old")
            await here.linked("orders")
            for change in (here.changes.pause, here.changes.resume, here.changes.promote):
                with pytest.raises(NotFound, match="no topic 'payments'"):
                    await change("old", ["orders", "payments"])
            assert here.phases() == {"orders": LinkPhase.COPYING}

    asyncio.run(story())


def test_two_operators_at_once() -> None:
    async def story() -> None:
        async with world() as here:
            await here.linked("orders")
            await asyncio.gather(here.changes.pause("old"), here.changes.resume("old", accept_gap=True))
            assert here.state.links.links["old"].spec.options["accept.gap"] == "true"

    asyncio.run(story())
