"""The health pages of brokers and compactors: a status, a reason if there is one, and the duties of the process."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.background import Background, DutyReport
from headwater.log.damage import DamageLine
from headwater.ops.http import Page, Request


class Health(msgspec.Struct, omit_defaults=True):
    """The content of `/health` for one process."""

    status: str
    reason: str = ""
    full: dict[str, str] = msgspec.field(default_factory=dict)
    """Stores without room, and the last error of each."""
    duties: list[DutyReport] = msgspec.field(default_factory=list)
    damage: list[DamageLine] = msgspec.field(default_factory=list)
    """Ranges of offsets that the process found to be unreadable."""

    def page(self) -> Page:
        """The page `/health`."""
        return page_of(self.status, self)

    def short_page(self) -> Page:
        """The page `/readyz`: the status and nothing else."""
        return page_of(self.status, Health(self.status))


def page_of(status: str, told: msgspec.Struct) -> Page:
    """A page whose HTTP status says whether the process serves."""
    return Page(msgspec.json.encode(told).decode(), 503 if status == "unhealthy" else 200)


def judged(
    background: Background,
    *,
    reason: str = "",
    degraded: bool = False,
    full: dict[str, str] | None = None,
    damage: Sequence[DamageLine] = (),
) -> Health:
    """The health of a process: unhealthy if there is a reason why it cannot serve, or if a duty has failed.

    A process that found damaged records serves all others. Without room for new records it serves those that are there.
    Both are degraded.
    """
    status = background.status
    if not reason and status == "unhealthy":
        reason = "DutyFailed"
    if reason:
        status = "unhealthy"
    elif degraded or full or damage:
        status = "degraded"
    return Health(status, reason, full or {}, background.reports(), list(damage))


async def alive(request: Request) -> Page:
    """The page of `/healthz`: this process answers."""
    return Page('{"status":"alive"}')
