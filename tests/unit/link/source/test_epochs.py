"""Which epoch a position has, as far as it was seen."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.link.source.epochs import MAX_EPOCHS, Epochs
from headwater.link.source.pieces import NO_EPOCH


def test_a_position_has_the_epoch_before_it() -> None:
    epochs = Epochs()
    assert epochs.at(0) == NO_EPOCH
    epochs.note(10, 20, 3)
    epochs.note(20, 25, 3)
    epochs.note(25, 30, 5)
    assert [epochs.at(p) for p in (9, 10, 11, 25, 26, 30, 31)] == [NO_EPOCH, NO_EPOCH, 3, 3, 5, 5, NO_EPOCH]


def test_what_does_not_follow_begins_anew() -> None:
    """After a jump, and after a source whose epochs fall, nothing is known of what was before."""
    epochs = Epochs()
    epochs.note(0, 10, 1)
    epochs.note(50, 60, 1)
    assert [epochs.at(p) for p in (5, 10, 50, 55)] == [NO_EPOCH, NO_EPOCH, NO_EPOCH, 1]
    epochs.note(60, 70, 0)
    assert [epochs.at(p) for p in (55, 60, 65)] == [NO_EPOCH, NO_EPOCH, 0]
    epochs.note(70, 80, NO_EPOCH)
    assert epochs.at(80) == NO_EPOCH and epochs.at(70) == 0


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=MAX_EPOCHS * 3))
def test_the_newest_epochs_are_kept(steps: list[tuple[int, int]]) -> None:
    """A position in them has its own epoch; older ones have none, and never a wrong one."""
    epochs, truth, at, epoch = Epochs(), dict[int, int](), 0, 0
    for size, more in steps:
        epoch += more
        epochs.note(at, at + size, epoch)
        truth.update(dict.fromkeys(range(at + 1, at + size + 1), epoch))
        at += size
    newest = sorted(set(truth.values()))[-MAX_EPOCHS:]
    for position, own in truth.items():
        assert epochs.at(position) == (own if own in newest else NO_EPOCH)
    assert epochs.at(at + 1) == epochs.at(0) == NO_EPOCH
