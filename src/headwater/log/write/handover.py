"""One writer per stream at a time.

A change of the profile moves a topic to another writer. The former writer may still hold batches of its streams, and
two writers do not wait for each other. So batches for the new writer wait here until the former one has decided all of
its own. The budget of the broker bounds how much waits.
"""

from __future__ import annotations

from typing import Protocol

from headwater.log.write.part import Part


class Admits(Protocol):
    """The part of a writer that a handover uses."""

    def admit(self, part: Part) -> None:
        """Take a batch of a stream that is this writer's own now."""

    def withdraw(self, part: Part) -> bool:
        """Drop a batch, unless it is already being stored."""


class _Owner:
    """The writer of a stream, and how many batches of the stream it has not decided."""

    __slots__ = ("line", "undecided", "writer")

    def __init__(self, writer: Admits, undecided: int, line: dict[Part, Admits] | None = None) -> None:
        self.writer = writer
        self.undecided = undecided
        self.line = line
        """Batches that wait, in the order of arrival, each with its writer; None if there are none."""


class Handover:
    """The streams of one domain that have undecided batches, each with its writer."""

    def __init__(self) -> None:
        self._owners: dict[int, _Owner] = {}
        self.waiting = 0
        """How many batches wait for another writer."""

    def __repr__(self) -> str:
        return f"<Handover of {len(self._owners)} streams, {self.waiting} batches wait>"

    def enter(self, writer: Admits, parts: list[Part]) -> list[Part]:
        """The batches that the writer takes now. The others wait here and are admitted later."""
        owners, entered = self._owners, parts
        for i, part in enumerate(parts):
            owner = owners.get(part.stream)
            if owner is None:
                owners[part.stream] = _Owner(writer, 1)
            elif owner.writer is writer and owner.line is None:
                owner.undecided += 1
            else:
                if entered is parts:
                    entered = parts[:i]
                self._wait(owner, writer, part)
                continue
            if entered is not parts:
                entered.append(part)
        return entered

    def _wait(self, owner: _Owner, writer: Admits, part: Part) -> None:
        if owner.line is None:
            owner.line = {}
        owner.line[part] = writer
        self.waiting += 1

    def leave(self, stream: int, count: int = 1) -> None:
        """Note that batches of a stream are decided or dropped. After the last one, the next writer takes over."""
        owner = self._owners[stream]
        owner.undecided -= count
        if owner.undecided:
            return
        del self._owners[stream]
        if owner.line is not None:
            self._take_over(stream, owner.line)

    def _take_over(self, stream: int, line: dict[Part, Admits]) -> None:
        """Pass the batches that wait to the writer of the first one, up to a batch of another writer."""
        writer = next(iter(line.values()))
        passed: list[Part] = []
        for part, wanted in line.items():
            if wanted is not writer:
                break
            passed.append(part)
        for part in passed:
            del line[part]
        self.waiting -= len(passed)
        self._owners[stream] = _Owner(writer, len(passed), line or None)
        for part in passed:
            writer.admit(part)

    def withdraw(self, part: Part) -> int:
        """Drop a batch, unless it is already being stored or decided. Returns how many bytes that frees."""
        size = len(part.batch.data)
        owner = self._owners.get(part.stream)
        if owner is None:
            return 0
        if owner.line is not None and part in owner.line:
            del owner.line[part]
            owner.line = owner.line or None
            self.waiting -= 1
            return size
        if not owner.writer.withdraw(part):
            return 0
        self.leave(part.stream)
        return size
