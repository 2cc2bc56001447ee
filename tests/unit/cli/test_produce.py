"""`headwater produce` says why nothing is written, and does not repeat itself."""

from headwater.cli.produce import Waiting
from headwater.errors import StoreFull

PROMISES = ("H3",)


class _Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def test_what_is_said_while_a_disk_is_full() -> None:
    said: list[str] = []
    clock = _Clock()
    waiting = Waiting(clock, said.append)
    for _ in range(8):  # a moment without a leader is not worth a word
        waiting(StoreFull("moved"))
    clock.now = 100.0
    for tenth in range(200):
        clock.now = 100.0 + tenth / 10
        waiting(StoreFull("no space left to store wal/a: No space left on device"))
    assert said == ["no space left to store wal/a: No space left on device; retrying"] * 2
