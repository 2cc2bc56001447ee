"""Child processes that a broker starts for work that would block its event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

from headwater.errors import StoreUnavailable

CHECKPOINT_SECONDS = 900.0
"""A child that has not written a checkpoint in this time is killed. The next round tries again."""


async def run_child(
    arguments: Sequence[str], environment: Mapping[str, str], seconds: float, python: str = sys.executable
) -> None:
    """Run `headwater` with arguments. Raises `StoreUnavailable` if the child cannot start, fails or hangs."""
    what = f"headwater {arguments[0]}"
    try:
        child = await asyncio.create_subprocess_exec(
            python,
            "-m",
            "headwater",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # so that the child can lower its priority without lowering the broker's
        )
    except OSError as error:
        raise StoreUnavailable(f"{what} cannot be started: {error}") from error
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        raise StoreUnavailable(f"{what} was killed: it did not end within {seconds:g} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if code:
        raise StoreUnavailable(f"{what} ended with exit code {code}")
