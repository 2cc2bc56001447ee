"""A deterministic event loop with virtual time, in which nodes can crash and pause.

Callbacks run in the order of virtual time. A callback belongs to the node in whose context it was made. A crashed node
is never scheduled again, and its `finally` blocks do not run. The callbacks of a paused node run later.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

MANY_TIMERS = 100
"""With more timers than this the loop removes cancelled ones as soon as they are the greater part."""
RESOLUTION = 1e-9
"""Timers fire as much too early."""


@dataclass(eq=False, slots=True)
class Life:
    """One run of one node, from its start to its crash."""

    name: str
    dead: bool = False
    paused_until: float = 0.0
    steps: int = 0
    crash_at_step: int | None = None
    on_crash: list[Callable[[], None]] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def crash(self) -> None:
        if not self.dead:
            self.dead = True
            for call in self.on_crash:
                call()


CURRENT: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class Deadlock(AssertionError):
    """Nothing is left to run, but the simulation is not over."""


def _nothing() -> None:
    pass


class _Call:
    """A callback that waits for its turn."""

    __slots__ = ("args", "callback", "context", "gone", "life")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context, life: Life | None
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.life = life
        self.gone = False

    def cancel(self) -> None:
        self.gone = True
        self.callback, self.args = _nothing, ()  # lets go of what they refer to

    def cancelled(self) -> bool:
        return self.gone


class _Timer(float):
    """A callback that waits for a time, as that time: floats are compared without a call of Python.

    Timers of one time fire in any order, which depends on all timers that were set and cancelled before.
    """

    __slots__ = ("args", "callback", "context", "gone", "life", "loop", "scheduled")

    args: tuple[Any, ...]
    callback: Callable[..., object]
    context: contextvars.Context
    gone: bool
    life: Life | None
    loop: SimLoop
    scheduled: bool

    def cancel(self) -> None:
        if not self.gone:
            self.gone = True
            self.callback, self.args = _nothing, ()
            if self.scheduled:
                self.loop.cancelled_timers += 1

    def cancelled(self) -> bool:
        return self.gone

    def when(self) -> float:
        return float(self)


class SimLoop(asyncio.BaseEventLoop):
    """See the docstring of the module.

    Simulations spend a large part of their time here. So the loop has its own queues, of callbacks that know their
    node, instead of the handles of `BaseEventLoop`.
    """

    _stopping: bool
    get_debug = staticmethod(bool)
    """Never in debug mode. Every future and every task asks, so this is no function of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.all_tasks: list[asyncio.Task[Any]] = []
        self.cancelled_timers = 0
        self._calls: deque[_Call | _Timer] = deque()
        self._timers: list[_Timer] = []

    def time(self) -> float:
        return self.now

    def close(self) -> None:
        super().close()
        self._calls.clear()
        self._timers.clear()

    def _write_to_self(self) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.all_tasks.append(task)  # the garbage collector must not close the coroutines of a crashed node
        return task

    # --- scheduling ------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if context is None:
            context = contextvars.copy_context()
        call = _Call(callback, args, context, context.get(CURRENT))
        self._calls.append(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        """Of the interpreter itself, which ends generators that nobody reads any more. No node crashes by it."""
        call = _Call(callback, args, contextvars.copy_context() if context is None else context, None)
        self._calls.append(call)
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if context is None:
            context = contextvars.copy_context()
        return self._set(self.now + delay, callback, args, context, context.get(CURRENT))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if context is None:
            context = contextvars.copy_context()
        return self._set(when, callback, args, context, context.get(CURRENT))

    def outside(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback that belongs to no node: of the network or a store."""
        self._set(self.now + delay, callback, args, contextvars.Context(), None)

    def _set(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        life: Life | None,
    ) -> _Timer:
        timer = _Timer(when)
        timer.callback = callback
        timer.args = args
        timer.context = context
        timer.life = life
        timer.loop = self
        timer.gone = False
        timer.scheduled = True
        heappush(self._timers, timer)
        return timer

    # --- running ---------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run until the loop is stopped."""
        while True:
            self._advance()
            self._run_ready()
            if self._stopping:
                return

    def _run_ready(self) -> None:
        """Run the callbacks that are ready, but not those that they make ready. What they held is let go of at once."""
        calls = self._calls
        for _ in range(len(calls)):
            call = calls.popleft()
            if call.gone:
                continue
            life = call.life
            if life is not None:
                if life.dead:
                    continue
                if life.paused_until > self.now:
                    self._set(life.paused_until, call.callback, call.args, call.context, life)
                    continue
                life.steps += 1
                if life.crash_at_step is not None and life.steps >= life.crash_at_step:
                    call.callback, call.args = life.crash, ()
            try:
                call.context.run(call.callback, *call.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as every event loop does
                self.call_exception_handler({"message": f"{call.callback} failed", "exception": error})

    def _advance(self) -> None:
        """Put the callbacks whose time has come with those that are ready. If none is, the time moves on."""
        timers, calls = self._timers, self._calls
        if len(timers) > MANY_TIMERS and self.cancelled_timers * 2 > len(timers):
            timers = self._timers = self._sort_out(timers)
            self.cancelled_timers = 0
        while timers and timers[0].gone:
            self.cancelled_timers -= 1
            heappop(timers).scheduled = False
        if not calls and not self._stopping:
            if not timers:
                raise Deadlock("no callback is scheduled")
            self.now += max(0.0, timers[0] - self.now)
        end = self.now + RESOLUTION
        while timers and timers[0] < end:
            timer = heappop(timers)
            timer.scheduled = False
            calls.append(timer)

    @staticmethod
    def _sort_out(timers: list[_Timer]) -> list[_Timer]:
        """The timers without those that were cancelled, in a new heap."""
        left = []
        for timer in timers:
            if timer.gone:
                timer.scheduled = False
            else:
                left.append(timer)
        heapify(left)
        return left


def run_as(life: Life | None, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a coroutine that belongs to a node."""
    context = contextvars.copy_context()
    context.run(CURRENT.set, life)
    return asyncio.get_running_loop().create_task(coro, context=context)
