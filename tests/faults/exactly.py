"""A source that copiers copy in transactions while a test disturbs them, and the check that each record came once."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Self

from tests.faults.copying import (
    CLIENTS,
    GROUP,
    SOURCE,
    TARGET,
    TARGET_PARTITIONS,
    Seen,
    Source,
    Talking,
    read_copies,
    waiting,
)

SPOIL_EVERY = 5
PROGRESS_S = 90.0


class Copy(AbstractContextManager["Copy"]):
    """Copiers of one client. The topics exist."""

    def __init__(
        self, bootstrap: str, client: str, directory: Path, *, copiers: int = 2, timeout_ms: int = 10_000
    ) -> None:
        self.bootstrap = bootstrap
        self.copiers: dict[str, Talking] = {}
        """The running copiers by their transactional ids."""
        self.heard: Counter[str] = Counter()
        """What copiers said that have ended."""
        self._command = CLIENTS[client]()
        self._directory = directory
        self._timeout_ms = timeout_ms
        self._ids = [f"copier-{number}" for number in range(copiers)]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.callback(self._kill_copiers)
            for id_ in self._ids:
                self.start(id_)
            self.seen = entered.enter_context(Seen(self.bootstrap))
            self.source = entered.enter_context(Source(self.bootstrap, lambda: self.seen.count))
            for copier in self.copiers.values():
                copier.waits_for("ready")
            self._running = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _kill_copiers(self) -> None:
        for id_ in list(self.copiers):
            self.kill(id_)

    def start(self, id_: str) -> None:
        """Start a copier, beside its log of earlier lives."""
        arguments = [id_, GROUP, SOURCE, TARGET, TARGET_PARTITIONS, SPOIL_EVERY, self._timeout_ms, self.bootstrap]
        self.copiers[id_] = Talking([*self._command, *map(str, arguments)], self._directory / f"{id_}.log")

    def kill(self, id_: str) -> None:
        """SIGKILL to a copier."""
        copier = self.copiers.pop(id_)
        copier.kill()
        self.heard += copier.heard

    def progress(self, records: int) -> None:
        """Wait until committed readers have seen so many records more."""
        wanted = self.seen.count + records
        waiting(lambda: self._has_seen(wanted), f"{records} more copies are seen", self, PROGRESS_S)

    def _has_seen(self, count: int) -> bool:
        ended = [str(copier) for copier in self.copiers.values() if copier.process.poll() is not None]
        assert not ended, f"copiers ended: {ended}"
        return self.seen.count >= count

    def finish(self) -> int:
        """Copy what is left, end everything well, and check it; answers how many records there were."""
        count = self.source.finish()
        waiting(lambda: self._has_seen(count), f"all of {count} copies are seen", self, PROGRESS_S)
        for copier in self.copiers.values():
            copier.finish()
            self.heard += copier.heard
        committed = read_copies(self.bootstrap)
        committed.check(self.source.written)
        everything = read_copies(self.bootstrap, committed=False)
        assert committed.places.items() <= everything.places.items()
        spoiled = sum(value.startswith("!") for _, value in everything.places.values())
        assert spoiled, "no transaction was aborted on purpose"
        return count

    def __str__(self) -> str:
        return f"{self.seen.count} of {self.source.written.total()} seen; {'; '.join(map(str, self.copiers.values()))}"
