"""The packed table of WAL objects against a plain dictionary."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.state.streams.wal_objects import MAX_SEQUENCE_GAP, OBJECT_BYTES, WalObject, WalObjects
from headwater.types import WalId
from tests.support.promise import promise

PROMISES = ("L3",)


@dataclass
class Known:
    created_ms: int
    arrived_ms: int
    size: int
    references: int
    dead_ms: int = 0


class ObjectsModel(RuleBasedStateMachine):
    """Objects of a few epochs, in any order of sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = WalObjects()
        self.model: dict[WalId, Known] = {}
        self.now = 0

    @rule(
        epoch=st.integers(1, 3),
        sequence=st.integers(0, 40),
        size=st.integers(1, (1 << 32) - 1),
        references=st.integers(1, 4),
        created=st.integers(0, 1 << 45),
    )
    def add(self, epoch: int, sequence: int, size: int, references: int, created: int) -> None:
        object_id = WalId(epoch, sequence)
        assert self.objects.fits(epoch, sequence) == (object_id not in self.model)
        if object_id in self.model:
            return
        self.objects.add(
            epoch, sequence, zone=f"z{epoch}", created_ms=created, arrived_ms=self.now, size=size, references=references
        )
        self.model[object_id] = Known(created, self.now, size, references)

    @precondition(lambda self: any(not o.dead_ms for o in self.model.values()))
    @rule(data=st.data(), later=st.integers(0, 3))
    def release(self, data: st.DataObject, later: int) -> None:
        self.now += later
        object_id = data.draw(st.sampled_from(sorted(i for i, o in self.model.items() if not o.dead_ms)))
        self.objects.release(object_id, self.now)
        known = self.model[object_id]
        known.references -= 1
        if not known.references:
            known.dead_ms = max(self.now, 1)

    @rule(epoch=st.integers(1, 4), sequence=st.integers(0, 45))
    def forget(self, epoch: int, sequence: int) -> None:
        object_id = WalId(epoch, sequence)
        known = self.model.get(object_id)
        dead = known is not None and known.dead_ms > 0
        assert self.objects.forget(object_id) == dead
        if dead:
            del self.model[object_id]

    @rule()
    def through_bytes(self) -> None:
        packed = self.objects.pack()
        self.objects = WalObjects.unpack(packed)
        assert self.objects.pack() == packed

    @invariant()
    def same_objects(self) -> None:
        wanted = {
            i: WalObject(i, f"z{i.epoch}", o.created_ms, o.arrived_ms, o.size, o.references, o.dead_ms)
            for i, o in self.model.items()
        }
        assert {o.id: o for o in self.objects} == wanted
        assert len(self.objects) == len(wanted)
        for epoch in range(1, 5):
            for sequence in range(0, 45, 7):
                object_id = WalId(epoch, sequence)
                assert self.objects.get(object_id) == wanted.get(object_id)
        dead = list(self.objects.dead())
        assert dict(dead) == {i: o.dead_ms for i, o in self.model.items() if o.dead_ms}
        assert [died for _, died in dead] == sorted(died for _, died in dead)

    @invariant()
    def nothing_is_kept_below_the_oldest(self) -> None:
        for epoch, _, base, data in self.objects.pack():
            sequences = [i.sequence for i in self.model if i.epoch == epoch]
            assert base == min(sequences)
            assert len(data) >= (max(sequences) - base + 1) * OBJECT_BYTES


ObjectsModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_objects_are_a_dictionary = ObjectsModel.TestCase


@promise("L3")
def test_an_absurd_sequence_does_not_fit() -> None:
    """A hole of more than a million sequences would cost memory for nothing; no writer of ours leaves one."""
    objects = WalObjects()
    assert objects.fits(1, 10**9)
    objects.add(1, 10**9, zone="z", created_ms=1, arrived_ms=1, size=1, references=1)
    assert objects.fits(1, 10**9 + 1)
    assert objects.fits(1, 10**9 + MAX_SEQUENCE_GAP)
    for far in (10**9 + MAX_SEQUENCE_GAP + 10, 10**9 - MAX_SEQUENCE_GAP - 10, 0):
        assert not objects.fits(1, far)
    assert objects.fits(2, 0)
