"""Unit tests run in one process: each way to start another one is closed to them."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

WAYS: dict[str, Callable[[], object]] = {
    "subprocess": lambda: subprocess.run([sys.executable, "-c", ""], check=False),
    "asyncio": lambda: asyncio.run(asyncio.create_subprocess_exec(sys.executable, "-c", "")),
    "fork": lambda: os.fork(),
    "multiprocessing": lambda: multiprocessing.get_context("fork").Process(target=print).start(),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_process_is_started(way: str) -> None:
    with pytest.raises(AssertionError, match="starts no process"):
        WAYS[way]()
