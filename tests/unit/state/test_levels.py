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
from headwater.state.commands.groups import ClaimShard
from headwater.state.commands.holds import HoldVersion, MoveHold, ReleaseVersions, TakeHold
from headwater.state.commands.links import DropLink, LinkPhase, LinkSpec, PutLink, SetLinkTopic, SetMirror, SkipStreams
from headwater.state.commands.schemas import (
    DeleteSchemas,
    RegisterSchema,
    SchemaContent,
    SchemaMode,
    SchemaSettings,
    Seen,
    SetSchemaMode,
    SetSchemaSettings,
)
from headwater.state.commands.streams import AppendUnits, Unit, UnitChunk
from headwater.state.commands.tables import SegmentRun, SettleRuns
from headwater.state.commands.transactions import (
    AbortTransaction,
    EndTransaction,
    ForgetTransactions,
    InitTransaction,
    JoinTransaction,
    StageOffsets,
)
from headwater.state.machine import FIRST_LEVEL, LEVEL, Part, State
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


@promise("M5", "K12")
@pytest.mark.parametrize(
    "command",
    [
        InitTransaction("id", 1, 1, -1, -1),
        JoinTransaction("id", 1, 0, (1,), ()),
        StageOffsets(1, "g", "id", 1, 0, True, []),
        EndTransaction("id", 1, 0, True, True, 2),
        AbortTransaction("id", 1, 1, 0, 2),
        ForgetTransactions(5),
        AppendUnits(1, 200, 0, "z", [Unit([], [UnitChunk(1, 93, [(9, 1, 0)], [], b"")])]),
        SettleRuns(1, TOPIC, "root", [], [SegmentRun(1, 0, 1, -1, 0, 0)], [-1]),
    ],
)
def test_transactions_need_the_second_level(command: Any) -> None:
    """Before it a command of theirs changes no byte, and the refusal says what to do."""
    scribe, other = Scribe(StreamsState(ONE)), Scribe(StreamsState(ONE))
    for each in (scribe, other):
        each.streams(1)
    refused = scribe.do(1, command)
    other.do(1, Tick())
    assert isinstance(refused, Refused) and refused.reason is Reason.INVALID
    wanted = f"{type(command).__name__} needs level 2, the cluster is at 1: run `headwater cluster upgrade`"
    assert refused.detail == wanted
    assert scribe.state.image() == other.state.image()
    scribe.do(1, SetLevel(2, machine.LEVELS[2]))
    taken = scribe.do(1, command)
    assert not isinstance(taken, Refused) or taken.detail != wanted


@promise("M5", "Q2")
@pytest.mark.parametrize(
    "command", [TakeHold(), MoveHold(5), HoldVersion(TOPIC, 1), ReleaseVersions([(TOPIC, 1)])], ids=repr
)
def test_holds_need_the_fourth_level(command: Any) -> None:
    """Before it a command of theirs changes no byte, and the image is that of the third level."""
    scribe, other = Scribe(StreamsState(ONE)), Scribe(StreamsState(ONE))
    for each in (scribe, other):
        each.streams(1)
        each.do(1, SetLevel(3, machine.LEVELS[3]))
    refused = scribe.do(1, command)
    other.do(1, Tick())
    wanted = f"{type(command).__name__} needs level 4, the cluster is at 3: run `headwater cluster upgrade`"
    assert refused == Refused(Reason.INVALID, wanted)
    assert scribe.state.image() == other.state.image()
    assert b"holds" not in scribe.state.image()
    scribe.do(1, SetLevel(4, machine.LEVELS[4]))
    assert b"holds" in scribe.state.image()
    taken = scribe.do(1, command)
    assert not isinstance(taken, Refused) or taken.detail != wanted


@promise("M5", "N1")
@pytest.mark.parametrize(
    ("part", "command"),
    [
        ("mirrors", SetMirror((1,), 1, True)),
        ("mirrors", SkipStreams([(1, 1, 0, 5)])),
        ("links", PutLink(LinkSpec("l", ("h:1",), {}, (), (), (), {}, False), 0)),
        ("links", DropLink("l")),
        ("links", SetLinkTopic(TOPIC, "l", "s", TOPIC, LinkPhase.COPYING, "", 0)),
    ],
    ids=repr,
)
def test_links_need_the_fifth_level(part: str, command: Any) -> None:
    """Before it a command of theirs changes no byte, and the image is that of the fourth level."""
    scribes = []
    for _ in range(2):
        scribe = Scribe(ClusterState() if part == "links" else StreamsState(ONE))
        if part == "links":
            take(scribe, "a", 1, LEVEL)
        else:
            scribe.streams(1)
        scribe.do(1, SetLevel(4, machine.LEVELS[4]))
        scribes.append(scribe)
    scribe, other = scribes
    refused = scribe.do(1, command)
    other.do(1, Tick())
    wanted = f"{type(command).__name__} needs level 5, the cluster is at 4: run `headwater cluster upgrade`"
    assert refused == Refused(Reason.INVALID, wanted)
    assert scribe.state.image() == other.state.image()
    assert part.encode() not in scribe.state.image()
    scribe.do(1, SetLevel(5, machine.LEVELS[5]))
    assert part.encode() in scribe.state.image()
    taken = scribe.do(1, command)
    assert not isinstance(taken, Refused) or taken.detail != wanted


@promise("M5", "T6")
@pytest.mark.parametrize(
    "command",
    [
        RegisterSchema("s", Seen(0, 0), SchemaContent("AVRO", '"int"', (), ""), TOPIC, 0, 0),
        DeleteSchemas("s", Seen(0, 0), (1,), False),
        SetSchemaSettings("s", Seen(0, 0), SchemaSettings("FULL", None)),
        SetSchemaMode("s", Seen(0, 0), SchemaMode.IMPORT),
    ],
    ids=repr,
)
def test_schemas_need_the_sixth_level(command: Any) -> None:
    """Before it a command of theirs changes no byte, and the image is that of the fifth level."""
    scribe, other = Scribe(ClusterState()), Scribe(ClusterState())
    for each in (scribe, other):
        take(each, "a", 1, LEVEL)
        each.do(1, SetLevel(5, machine.LEVELS[5]))
    refused = scribe.do(1, command)
    other.do(1, Tick())
    wanted = f"{type(command).__name__} needs level 6, the cluster is at 5: run `headwater cluster upgrade`"
    assert refused == Refused(Reason.INVALID, wanted)
    assert scribe.state.image() == other.state.image()
    assert b"schemas" not in scribe.state.image()
    scribe.do(1, SetLevel(6, machine.LEVELS[6]))
    assert b"schemas" in scribe.state.image()
    taken = scribe.do(1, command)
    assert not isinstance(taken, Refused) or taken.detail != wanted


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
    assert (before.level, before.groups.claims) == (FIRST_LEVEL, {})
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
    assert scribe.state.level == FIRST_LEVEL
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
