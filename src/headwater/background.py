"""The one place that starts tasks: supervised duties, short tasks, and the same work on many items.

A duty is work that goes on as long as the process runs. Each kind is declared once, as a `Duty`. The declaration says
what happens when the duty dies: it is restarted after a pause, or the process ends. `Background` runs the duties of one
process and reports on them for the health page. A short task belongs to its owner: `Tasks` holds several, `spawn`
starts one that the owner keeps, and `launch` starts one whose outcome the caller always handles.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from headwater.clock import Clock, SystemClock
from headwater.errors import DutyFailed, HeadwaterError

log = logging.getLogger("headwater.background")
AT_ONCE = 16
RESTART_SECONDS = 0.5
"""The pause before a duty's first restart. It doubles with every further death."""
RESTART_LIMIT_SECONDS = 60.0
STEADY_SECONDS = 120.0
"""After a run of this length the pause before the next restart is the shortest again."""
MAX_ERROR = 300
"""The number of characters of an error in a report. The log has the whole error."""

_A = TypeVar("_A")
_B = TypeVar("_B")


class OnDeath(enum.Enum):
    """What happens when a duty raises an exception."""

    RESTART = "restart"
    """Run the duty again after a pause: it has changed nothing outside itself, and another attempt can help."""
    END = "end"
    """End the process: its memory cannot be trusted, or its clients would wait for ever."""


class Duty(msgspec.Struct, frozen=True):
    """A kind of work that goes on as long as the process runs."""

    name: str
    on_death: OnDeath
    purpose: str

    def __post_init__(self) -> None:
        if DUTIES.setdefault(self.name, self) != self:
            raise ValueError(f"two duties have the name {self.name!r}")


DUTIES: dict[str, Duty] = {}
"""All duties whose modules are imported, by name."""


class State(enum.Enum):
    """The state of a duty."""

    RUNNING = "running"
    RESTARTING = "restarting"
    FAILED = "failed"
    DONE = "done"


class DutyReport(msgspec.Struct, frozen=True):
    """What the health page shows of a duty."""

    name: str
    state: str
    restarts: int = 0
    error: str = ""
    """The error of the last death; empty if there was none."""
    at_ms: int = 0
    """The time of the last death, by the process's clock."""


class Supervised:
    """A running duty. `Background.run` creates it."""

    def __init__(
        self,
        duty: Duty,
        name: str,
        work: Callable[[], Awaitable[None]],
        clock: Clock,
        on_failed: Callable[[DutyFailed], None],
    ) -> None:
        self.duty = duty
        self.name = name
        self.state = State.RUNNING
        self.restarts = 0
        self._work = work
        self._clock = clock
        self._on_failed = on_failed
        self._error = ""
        self._at_ms = 0
        self._ending = False
        self._task = asyncio.create_task(self._run(), name=name)

    def __repr__(self) -> str:
        return f"<Duty {self.name}, {self.state.value}, {self.restarts} restarts>"

    @property
    def active(self) -> bool:
        """Whether the duty runs or will be restarted."""
        return not self._ending and not self._task.done() and self.state is not State.FAILED

    @property
    def stopped(self) -> bool:
        """Whether the duty was stopped by its owner."""
        return self._ending and self.state is not State.FAILED

    def report(self) -> DutyReport:
        """The report for the health page."""
        return DutyReport(self.name, self.state.value, self.restarts, self._error, self._at_ms)

    async def _run(self) -> None:
        pause = RESTART_SECONDS
        while True:
            self.state, began = State.RUNNING, self._clock.monotonic()
            try:
                await self._work()
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                self._died(error)  # the duty was not cancelled itself, but something that it awaited was
            except Exception as error:  # noqa: BLE001 - every error is logged and reported
                self._died(error)
            else:
                self.state = State.DONE
                return
            if self.state is State.FAILED:
                return
            if self._clock.monotonic() - began >= STEADY_SECONDS:
                pause = RESTART_SECONDS
            await asyncio.sleep(pause)
            pause = min(pause * 2, RESTART_LIMIT_SECONDS)
            self.restarts += 1

    def _died(self, error: BaseException) -> None:
        self._error = f"{type(error).__name__}: {error}"[:MAX_ERROR]
        self._at_ms = self._clock.wall_ms()
        ends = self.duty.on_death is OnDeath.END
        log.error(
            "a duty died",
            extra={"duty": self.name, "then": self.duty.on_death.value, "restarts": self.restarts},
            exc_info=error,
        )
        self.state = State.FAILED if ends else State.RESTARTING
        if ends:
            failure = DutyFailed(f"the duty {self.name} died: {self._error}")
            failure.__cause__ = error
            self._on_failed(failure)

    def fail(self, error: BaseException) -> None:
        """Let the duty die of an error that another task found, which does a part of the duty's work."""
        if self.active and self.duty.on_death is OnDeath.END:
            self._died(error)
            self._task.cancel()

    def cancel(self) -> asyncio.Task[None]:
        """Cancel the duty without waiting for its end. This does not count as a death."""
        self._ending = True
        self._task.cancel()
        return self._task

    async def stop(self) -> None:
        """Cancel the duty and wait for its end."""
        task = self.cancel()
        await asyncio.wait([task])  # unlike `await task`, this raises only if the caller is cancelled
        if not task.cancelled():
            task.exception()


class Background:
    """The duties of one process."""

    def __init__(self, clock: Clock | None = None, on_failed: Callable[[DutyFailed], None] | None = None) -> None:
        self._clock = clock or SystemClock()
        self._running: dict[str, Supervised] = {}
        self.on_failed = on_failed
        """Called when a duty with `OnDeath.END` dies. The process then ends."""
        self.failure: DutyFailed | None = None
        """The first death of such a duty."""

    def __repr__(self) -> str:
        return f"<Background of {len(self._running)} duties>"

    def run(self, duty: Duty, work: Callable[[], Awaitable[None]], of: object = "") -> Supervised:
        """Start a duty. `of` distinguishes it from others of the same kind."""
        name = f"{duty.name}-{of}" if of != "" else duty.name
        before = self._running.get(name)
        if before is not None and before.active:
            raise ValueError(f"the duty {name} runs already")
        started = self._running[name] = Supervised(duty, name, work, self._clock, self._failed)
        return started

    def _failed(self, failure: DutyFailed) -> None:
        self.failure = self.failure or failure
        if self.on_failed is not None:
            self.on_failed(failure)

    def reports(self) -> list[DutyReport]:
        """The reports of all duties that were not stopped."""
        return [found.report() for found in self._running.values() if not found.stopped]

    @property
    def status(self) -> str:
        """`healthy`; `degraded` while a duty waits for its restart; `unhealthy` once one has failed."""
        states = {found.state for found in self._running.values() if not found.stopped}
        if State.FAILED in states:
            return "unhealthy"
        return "degraded" if State.RESTARTING in states else "healthy"

    async def close(self) -> None:
        """Stop all duties."""
        left = [found.cancel() for found in self._running.values()]
        await asyncio.gather(*left, return_exceptions=True)


# --- short tasks ---------------------------------------------------------------------------------------------


def launch(work: Awaitable[_A]) -> asyncio.Task[_A]:
    """Start a task whose outcome the caller always handles."""
    return asyncio.ensure_future(work)


def spawn(work: Coroutine[Any, Any, _A], name: str) -> asyncio.Task[_A]:
    """Start a task that the caller keeps and may await. A failure other than a `HeadwaterError` is always logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(consume)
    return task


def consume(future: asyncio.Future[Any]) -> None:
    """A done callback for a future that may never be awaited. Its failure counts as seen, and is logged unless it is a
    `HeadwaterError`."""
    if future.cancelled():
        return
    error = future.exception()
    if error is not None and not isinstance(error, HeadwaterError):
        name = future.get_name() if isinstance(future, asyncio.Task) else ""
        log.error("a task failed", extra={"task": name}, exc_info=error)


class Tasks:
    """Short tasks of one owner. They are held until they are done."""

    def __init__(self) -> None:
        self._held: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<Tasks, {len(self._held)} under way>"

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._held))

    def spawn(self, work: Coroutine[Any, Any, _A], name: str) -> asyncio.Task[_A]:
        """Like the function `spawn`; the task is held here."""
        task = spawn(work, name)
        self._held.add(task)
        task.add_done_callback(self._held.discard)
        return task

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        for task in self:
            task.cancel()
        await asyncio.gather(*self, return_exceptions=True)


def _is_cancelled() -> bool:
    """Whether the running task itself was cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


# --- many items ----------------------------------------------------------------------------------------------


async def each(
    work: Callable[[_A], Awaitable[_B]],
    items: Iterable[_A],
    at_once: int = AT_ONCE,
    *,
    cancel: bool = False,
) -> list[_B]:
    """Do the same work on several items, `at_once` at a time. Returns the results in order.

    After a failure no more items are started. The failure is raised when the running ones have ended; with `cancel`
    they are cancelled.
    """
    waiting = list(items)
    if len(waiting) <= 1:
        return [await work(item) for item in waiting]
    found: dict[int, _B] = {}
    rest = iter(enumerate(waiting))
    failed = False

    async def worker() -> None:
        nonlocal failed
        for i, item in rest:
            if failed:
                return
            try:
                found[i] = await work(item)
            except BaseException:
                failed = True
                raise

    workers = [asyncio.ensure_future(worker()) for _ in range(min(at_once, len(waiting)))]
    try:
        results = await asyncio.gather(*workers, return_exceptions=not cancel)
    finally:
        for started in workers:
            started.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [found[i] for i in range(len(waiting))]
