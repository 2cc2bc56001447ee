"""Feature levels: what a state takes below one, who may raise it, and what an older build does."""

import dataclasses
from typing import Any, ClassVar

import msgspec
import pytest

from headwater import __version__
from headwater.errors import Halted
from headwater.state import machine
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Fence, SetLevel, Tick
from headwater.state.commands.cluster import TakeEpoch
from headwater.state.commands.groups import ClaimShard, CommitAlone
from headwater.state.machine import LEVEL, LOWEST, Part, State
from headwater.state.records import FORMAT
from headwater.state.results import Done, Reason, Refused
from headwater.state.streams import groups
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Position
from tests.support.promise import promise
from tests.support.scribe import TOPIC, Scribe

PROMISES = ("M5",)

ONE = Domain(1)
NEXT = LEVEL + 1
RAISE = SetLevel(NEXT, "9.9.9")


class NewerStreams(StreamsState):
    """A build in which groups came with the next level."""

    PARTS: ClassVar[tuple[Part[Any, Any], ...]] = tuple(
        dataclasses.replace(part, level=NEXT) if part is groups.PART else part for part in StreamsState.PARTS
    )


class OlderStreams(StreamsState):
    """A build that does not know groups."""

    PARTS: ClassVar[tuple[Part[Any, Any], ...]] = tuple(p for p in StreamsState.PARTS if p is not groups.PART)


class WiderStreams(StreamsState):
    """A build in which one command of groups came with the next level."""

    PARTS: ClassVar[tuple[Part[Any, Any], ...]] = tuple(
        dataclasses.replace(part, later={CommitAlone: NEXT}) if part is groups.PART else part
        for part in StreamsState.PARTS
    )


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """This build knows the next level."""
    monkeypatch.setattr(machine, "LEVEL", NEXT)


def take(scribe: Scribe, process: str, node: int, level: int) -> Any:
    return scribe.do(0, TakeEpoch(process, node, "z", (), level, f"0.{level}.0"))


@promise("M5")
@pytest.mark.usefixtures("newer")
def test_a_part_works_from_its_level_on() -> None:
    """Before it, its commands are refused and its image is left out; an older build writes the same bytes."""
    scribe, older = Scribe(NewerStreams(ONE)), Scribe(OlderStreams(ONE))
    for each in (scribe, older):
        each.do(1, Fence(7))
    assert scribe.state.image() == older.state.image()
    refused = scribe.do(1, ClaimShard(3))
    assert isinstance(refused, Refused) and refused.reason is Reason.INVALID
    assert "headwater cluster upgrade" in refused.detail and str(NEXT) in refused.detail
    assert scribe.do(1, RAISE) == Done(NEXT)
    assert scribe.do(1, ClaimShard(3)) == Done(1)
    other = NewerStreams(ONE)
    other.restore(scribe.state.image())
    assert (other.level, other.build, other.image()) == (NEXT, "9.9.9", scribe.state.image())
    assert other.groups.claims == scribe.state.groups.claims  # type: ignore[attr-defined]
    assert Scribe(other).do(2, ClaimShard(4)) == Done(2)


@promise("M5")
@pytest.mark.usefixtures("newer")
def test_a_command_works_from_its_level_on() -> None:
    """Before it, the command changes no byte, and the refusal says what to do. Its part works all the time."""
    scribe, other = Scribe(WiderStreams(ONE)), Scribe(StreamsState(ONE))
    command = CommitAlone("g", [(TOPIC.bytes, 0, 5, -1, "")])
    for each in (scribe, other):
        assert each.do(1, ClaimShard(3)) == Done(1)
    refused = scribe.do(1, command)
    other.do(1, Tick())
    text = f"CommitAlone needs level {NEXT}, the cluster is at {LEVEL}: run `headwater cluster upgrade`"
    assert refused == Refused(Reason.INVALID, text)
    assert scribe.state.image() == other.state.image()
    assert scribe.write(1, RAISE, command) == [Done(NEXT), Done()]
    assert scribe.state.groups.get("g") is not None  # type: ignore[attr-defined]


@promise("M5")
@pytest.mark.usefixtures("newer")
def test_a_checkpoint_of_a_lower_level_empties_what_it_does_not_have() -> None:
    """A replica that jumps to such a checkpoint keeps nothing of the state it had."""
    before = NewerStreams(ONE)
    image = before.image()
    scribe = Scribe(before)
    scribe.write(1, RAISE, ClaimShard(3))
    assert before.groups.claims
    before.restore(image)
    assert (before.level, before.groups.claims) == (LOWEST, {})
    assert isinstance(Scribe(before).do(2, ClaimShard(3)), Refused)


@promise("M5")
def test_an_older_build_halts_and_names_the_build() -> None:
    """At a record and at a checkpoint of a level that it does not know."""
    wanted = rf"level {NEXT}, which Headwater 9\.9\.9 .* this is Headwater {__version__}.*Start Headwater 9\.9\.9"
    with pytest.raises(Halted, match=wanted):
        Scribe(StreamsState(ONE)).do(1, RAISE)
    with pytest.raises(Halted, match=wanted):
        _raise_alone()
    image = msgspec.msgpack.decode(StreamsState(ONE).image())
    image[1], image[2] = NEXT, "9.9.9"
    image.append("a field of that build")
    with pytest.raises(Halted, match=wanted):
        StreamsState(ONE).restore(msgspec.msgpack.encode(image))


def _raise_alone() -> None:
    scribe = Scribe(ClusterState())
    assert take(scribe, "new", 1, NEXT) == Done(1)
    scribe.do(1, RAISE)


@promise("M5")
def test_a_level_that_a_live_process_does_not_know_is_refused() -> None:
    """Every build agrees on the refusal, also one that does not know the level; who is fenced does not count."""
    scribe = Scribe(ClusterState())
    assert take(scribe, "new", 1, NEXT) == Done(1)
    assert take(scribe, "old", 2, LEVEL) == Done(2)
    refused = scribe.do(1, RAISE)
    assert isinstance(refused, Refused) and refused.reason is Reason.INVALID
    assert refused.detail == f"level {NEXT} needs Headwater 9.9.9 or later: broker 2 runs 0.{LEVEL}.0"
    assert scribe.state.level == LOWEST
    scribe.do(1, Fence(2))
    with pytest.raises(Halted, match=r"9\.9\.9"):
        scribe.do(1, RAISE)


@promise("M5")
@pytest.mark.usefixtures("newer")
def test_an_older_process_gets_no_epoch() -> None:
    """One that had not read the raise when it asked. A repeated question of a newer one is answered as before."""
    scribe = Scribe(ClusterState())
    assert take(scribe, "new", 1, NEXT) == Done(1)
    assert scribe.do(1, RAISE) == Done(NEXT)
    assert isinstance(take(scribe, "old", 2, LEVEL), Refused)
    assert take(scribe, "new", 1, NEXT) == Done(1)
    assert take(scribe, "newer", 3, NEXT + 1) == Done(2)


@promise("M5")
def test_a_level_never_falls() -> None:
    """A repeated or lower raise changes nothing."""
    scribe = Scribe(StreamsState(ONE))
    scribe.do(1, SetLevel(LEVEL, machine.LEVELS[LEVEL]))
    before = scribe.state.digest
    assert scribe.do(1, SetLevel(LEVEL, "other")) == Done(LEVEL)
    assert scribe.do(1, SetLevel(0, "other")) == Done(LEVEL)
    assert (scribe.state.build, scribe.state.digest) == (machine.LEVELS[LEVEL], before)


@promise("M5")
def test_a_checkpoint_of_another_format_is_refused_before_its_level_is_looked_at() -> None:
    """A level means nothing in another format. The error says which format this build reads, and what to do."""
    image = msgspec.msgpack.decode(StreamsState(ONE).image())
    image[0], image[1] = FORMAT - 1, NEXT
    with pytest.raises(Halted, match=rf"format {FORMAT - 1}, .* reads format {FORMAT} only.*empty data directory"):
        StreamsState(ONE).restore(msgspec.msgpack.encode(image))


def altered(change: str) -> bytes:
    """An image with something that does not belong there."""
    image = msgspec.msgpack.decode(StreamsState(ONE).image())
    if change == "another format":
        image[0] += 1
    elif change == "a field more":
        image.append(1)
    elif change == "a field of the common part more":
        image[3].append(1)
    elif change == "a field of the common part less":
        image[3].pop()
    elif change == "a part more":
        image[4].append(["strange", 1, []])
    elif change == "a part less":
        image[4].pop()
    elif change == "a part of another format":
        image[4][0][1] += 1
    elif change == "a field of a part more":
        image[4][0][2].append(1)
    elif change == "a field of a part less":
        image[4][0][2].pop()
    else:
        return b"\xc1"
    return msgspec.msgpack.encode(image)


@promise("M5")
@pytest.mark.parametrize(
    "change",
    [
        "another format", "a field more", "a field of the common part more", "a field of the common part less",
        "a part more", "a part less", "a part of another format", "a field of a part more", "a field of a part less",
        "no image",
    ],
)  # fmt: skip
def test_images_are_read_strictly(change: str) -> None:
    """A build that meets an image it does not know halts; it never guesses."""
    with pytest.raises(Halted):
        StreamsState(ONE).restore(altered(change))


@promise("M5")
@pytest.mark.parametrize("make", [lambda: StreamsState(ONE), ClusterState])
def test_every_part_is_empty_in_an_empty_state(make: Any) -> None:
    """`empty` is what `pack` gives of a state that nothing has changed, and names and commands are unique."""
    state: State = make()
    assert state.position == Position(0)
    names = [part.name for part in state.PARTS]
    commands = [command for part in state.PARTS for command in part.commands]
    assert len(set(names)) == len(names) and len(set(commands)) == len(commands)
    for part in state.PARTS:
        assert msgspec.msgpack.encode(part.pack(state)) == msgspec.msgpack.encode(part.empty())
