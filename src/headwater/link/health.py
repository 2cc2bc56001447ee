"""Whether the parts of a link work: healthy, degraded or unhealthy, each with a reason.

A part is degraded while it fails and is retried, and unhealthy when it does not do its work any more: all tries failed,
the breaker is open, or it has stopped. A part that is degraded or unhealthy gets healthy again by a success.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from headwater.link.breaker import State
from headwater.settings.links import Links

MAX_COMPONENTS = 100_000
"""Components of one process, partitions included. A link has fewer."""


class Status(StrEnum):
    """How well something works."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


_RANK = {Status.HEALTHY: 0, Status.DEGRADED: 1, Status.UNHEALTHY: 2}


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a link, and how well it works."""

    name: str
    status: Status
    reason: str = ""
    """Why it is not healthy; empty if it is."""
    since_ms: int = 0
    """When it got this status, in milliseconds since 1970."""


def worst(statuses: Iterable[Status]) -> Status:
    """The worst of some statuses; healthy if there are none."""
    return max(statuses, key=_RANK.__getitem__, default=Status.HEALTHY)


def source_status(breaker: State, failures: int) -> Status:
    """How well a source works, by its breaker and the failures of its requests in a row."""
    if breaker is State.OPEN:
        return Status.UNHEALTHY
    return Status.DEGRADED if failures or breaker is State.HALF_OPEN else Status.HEALTHY


def tries_status(failures: int, settings: Links) -> Status:
    """How well something works that was retried after a number of failures in a row."""
    if failures >= settings.retry_tries:
        return Status.UNHEALTHY
    return Status.DEGRADED if failures else Status.HEALTHY


def partition_status(failures: int, late_ms: int, *, stopped: bool, settings: Links) -> Status:
    """How well a partition is copied."""
    if stopped:
        return Status.UNHEALTHY
    late = Status.DEGRADED if late_ms > settings.late_ms else Status.HEALTHY
    return worst([late, tries_status(failures, settings)])


class Health:
    """The components of a process, by name. It notes since when each has its status."""

    def __init__(self) -> None:
        self._components: dict[str, Component] = {}

    def __repr__(self) -> str:
        return f"<Health {self.status} of {len(self._components)} components>"

    @property
    def components(self) -> list[Component]:
        """All components, by name."""
        return [self._components[name] for name in sorted(self._components)]

    @property
    def status(self) -> Status:
        """The worst status of all components."""
        return worst([component.status for component in self._components.values()])

    def note(self, name: str, status: Status, reason: str, now_ms: int) -> bool:
        """Note how well a component works; returns whether its status changed, for the log.

        A component that is first heard of as healthy has not changed. One above the limit of components is not noted.
        """
        before = self._components.get(name)
        if before is None and len(self._components) >= MAX_COMPONENTS:
            return False
        changed = status is not (before.status if before is not None else Status.HEALTHY)
        since = before.since_ms if before is not None and not changed else now_ms
        self._components[name] = Component(name, status, "" if status is Status.HEALTHY else reason, since)
        return changed

    def forget(self, name: str) -> None:
        """A component is gone."""
        self._components.pop(name, None)
