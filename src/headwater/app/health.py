"""The pages that every process has: its health, with a reason if there is one and its duties, and its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from headwater.api.gate import Gate
from headwater.background import Background, DutyReport
from headwater.log.damage import DamageLine
from headwater.ops import accepting
from headwater.ops.http import Page, Request, Route
from headwater.ops.metrics import CONTENT_TYPE, Metric, render


class PartHealth(msgspec.Struct, frozen=True):
    """How well one part of a process works."""

    name: str
    status: str
    reason: str
    since_ms: int


class Health(msgspec.Struct, omit_defaults=True):
    """The content of `/health` for one process."""

    status: str
    reason: str = ""
    full: dict[str, str] = msgspec.field(default_factory=dict)
    """Stores without room, and the last error of each."""
    duties: list[DutyReport] = msgspec.field(default_factory=list)
    descriptors: dict[str, int] = msgspec.field(default_factory=dict)
    """File descriptors: how many are `open`, the `limit`, and how many `connections` there are for how much `room`."""
    damage: list[DamageLine] = msgspec.field(default_factory=list)
    """Ranges of offsets that the process found to be unreadable."""
    checkpoints: list[str] = msgspec.field(default_factory=list)
    """Checkpoints that could not be read when the process was started, each with the reason."""
    clocks: list[str] = msgspec.field(default_factory=list)
    """Wall clocks that have jumped, or that differ from those of other processes."""
    priority: str = ""
    """The niceness of a process that steps back behind others."""
    components: list[PartHealth] = msgspec.field(default_factory=list)
    """Parts that work or fail on their own, such as the source of each link."""

    def with_clocks(self, words: list[str]) -> Health:
        """The same, of a cluster with wrong clocks, if there are words about them."""
        self.clocks = words
        if words and self.status == "healthy":
            self.status = "degraded"
        return self

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
    checkpoints: Sequence[str] = (),
) -> Health:
    """The health of a process: unhealthy if there is a reason why it cannot serve, or if a duty has failed.

    A process that found damaged records serves all others. Without room for new records it serves those that are there.
    Both are degraded. So is one that found a damaged checkpoint: the next damage could be one too many.
    """
    status = background.status
    if not reason and status == "unhealthy":
        reason = "DutyFailed"
    if reason:
        status = "unhealthy"
    elif degraded or full or damage or checkpoints:
        status = "degraded"
    return Health(
        status, reason, full or {}, background.reports(), accepting.described(), list(damage), list(checkpoints)
    )


PAGES = {
    "/health": "the state of each process and its duties",
    "/healthz": "whether this process lives",
    "/readyz": "whether the ledger can be reached",
    "/metrics": "metrics for Prometheus",
}


async def alive(request: Request) -> Page:
    """The page of `/healthz`: this process answers."""
    return Page('{"status":"alive"}')


def front_page(more: str = "") -> Route:
    """The page `/`, for people who find the port: where the others are. It says nothing about the cluster."""
    listed = "".join(f'<li><a href="{path}">{path}</a>: {text}</li>' for path, text in PAGES.items())
    body = f"<!doctype html><title>Headwater</title><h1>Headwater</h1><ul>{listed}</ul>{more}"

    async def front(request: Request) -> Page:
        return Page(body, content_type="text/html; charset=utf-8")

    return front


def pages(
    gate: Gate, judge: Callable[[], Awaitable[Health]], metrics: Callable[[], list[Metric]], **labels: str
) -> dict[str, Route]:
    """The pages by path. Who may not describe the cluster sees only whether the process is alive and ready."""

    async def ready(request: Request) -> Page:
        return (await judge()).short_page()

    async def health(request: Request) -> Page:
        return (await judge()).page()

    async def measured(request: Request) -> Page:
        return Page(render(metrics() + accepting.collect(), **labels), content_type=CONTENT_TYPE)

    return {
        "/": front_page(),
        "/metrics": gate.describes_cluster(measured),
        "/healthz": alive,
        "/readyz": ready,
        "/health": gate.describes_cluster(health),
    }
