"""Kafka Streams with exactly_once_v2: running sums of the records of a source, and the check that each counted once.

`java/RunningSum.java` is the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Self

from tests.faults.copying import SOURCE, TARGET, Copies, Seen, Source, Talking, java, read_copies, waiting

APPLICATION = "sums"
DIGITS = 10
PROGRESS_S = 120.0


def check_sums(found: Copies, written: Mapping[int, int]) -> None:
    """Per digit the counts are 1, 2, 3, …, and each record of the source was added once."""
    for digit in range(DIGITS):
        expected: Counter[int] = Counter()
        for key, count in written.items():
            if key % DIGITS == digit:
                expected.update(range(count))
        values = [(int(count), int(total)) for count, total in (v.split(":") for v in found.values[str(digit)])]
        counts = [count for count, _ in values]
        wanted = list(range(1, expected.total() + 1))
        wrong = next(((at, got) for at, got in enumerate(counts, 1) if at != got), None)
        assert counts == wanted, f"digit {digit}: {len(counts)} of {len(wanted)} sums, first wrong one {wrong}"
        totals = [0, *(total for _, total in values)]
        added = Counter(after - before for before, after in pairwise(totals))
        assert added == expected, f"digit {digit}: other numbers were added: {(added - expected, expected - added)}"


class Summing(AbstractContextManager["Summing"]):
    """Instances of the application. The topics exist."""

    def __init__(self, bootstrap: str, directory: Path, *, instances: int = 1, timeout_ms: int = 10_000) -> None:
        self.bootstrap = bootstrap
        self.instances: dict[str, Talking] = {}
        self.dead = 0
        """How many threads of ended instances died."""
        self._command = java("RunningSum", "streams")
        self._directory = directory
        self._timeout_ms = timeout_ms
        self._names = [f"instance-{number}" for number in range(instances)]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.callback(self._kill_all)
            for name in self._names:
                self.start(name)
            self.seen = entered.enter_context(Seen(self.bootstrap))
            self.source = entered.enter_context(Source(self.bootstrap, lambda: self.seen.count))
            for instance in self.instances.values():
                instance.waits_for("ready")
            self._running = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _kill_all(self) -> None:
        for name in list(self.instances):
            self.kill(name)

    def start(self, name: str) -> None:
        state = self._directory / f"{name}.state"
        arguments = [name, APPLICATION, SOURCE, TARGET, str(self._timeout_ms), str(state), self.bootstrap]
        self.instances[name] = Talking([*self._command, *arguments], self._directory / f"{name}.log")

    def kill(self, name: str) -> None:
        """SIGKILL to an instance."""
        instance = self.instances.pop(name)
        instance.kill()
        self.dead += instance.heard["dead"]

    def progress(self, records: int) -> None:
        """Wait until committed readers have seen so many sums more."""
        wanted = self.seen.count + records
        waiting(lambda: self._has_seen(wanted), f"{records} more sums are seen", self, PROGRESS_S)

    def _has_seen(self, count: int) -> bool:
        for instance in self.instances.values():
            assert instance.process.poll() is None and not instance.heard["dead"], f"a thread died: {instance}"
        return self.seen.count >= count

    def finish(self) -> int:
        """Sum what is left, end all instances well, and check it; answers how many records there were."""
        count = self.source.finish()
        waiting(lambda: self._has_seen(count), f"all of {count} sums are seen", self, PROGRESS_S)
        for instance in self.instances.values():
            instance.finish()
        committed = read_copies(self.bootstrap)
        check_sums(committed, self.source.written)
        everything = read_copies(self.bootstrap, committed=False)
        assert committed.places.items() <= everything.places.items()
        assert not self.dead
        return count

    def __str__(self) -> str:
        told = "; ".join(map(str, self.instances.values()))
        return f"{self.seen.count} of {self.source.written.total()} seen; {told}"
