"""A deterministic event loop with virtual time, in which nodes can crash and pause.

Callbacks run in the order of virtual time. A callback belongs to the node in whose context it was made. A crashed node
is never scheduled again, and its `finally` blocks do not run. The callbacks of a paused node run later.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any


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


class _Selector:
    """Advances the virtual time instead of waiting for sockets."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("no callback is scheduled")
        if timeout > 0:
            self._loop.now += timeout
        return []

    def close(self) -> None:
        pass


class SimLoop(asyncio.BaseEventLoop):
    """See the docstring of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector = _Selector(self)
        self.all_tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], context: Any = None) -> Any:
        task = asyncio.Task(coro, loop=loop, context=context)
        self.all_tasks.append(task)  # the garbage collector must not close the coroutines of a crashed node
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if context is None:
            context = contextvars.copy_context()
        life = context.get(CURRENT)
        if life is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(self._step, life, callback, args, context, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if context is None:
            context = contextvars.copy_context()
        life = context.get(CURRENT)
        if life is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, self._step, life, callback, args, context, context=context)

    def _step(self, life: Life, callback: Any, args: tuple[Any, ...], context: contextvars.Context) -> None:
        if life.dead:
            return
        if life.paused_until > self.now:
            super().call_at(life.paused_until, self._step, life, callback, args, context, context=context)
            return
        life.steps += 1
        if life.crash_at_step is not None and life.steps >= life.crash_at_step:
            life.crash()
            return
        callback(*args)

    def outside(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback that belongs to no node: of the network or a store."""
        empty = contextvars.Context()
        super().call_at(self.now + delay, callback, *args, context=empty)


def run_as(life: Life | None, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a coroutine that belongs to a node."""
    context = contextvars.copy_context()
    context.run(CURRENT.set, life)
    return asyncio.get_running_loop().create_task(coro, context=context)
