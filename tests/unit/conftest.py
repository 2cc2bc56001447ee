"""What holds for unit tests: they run in one process."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_processes() -> Iterator[None]:
    """A unit test that starts a process fails; such tests are in other folders than `tests/unit`."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a unit test starts no process: move it out of tests/unit")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", refuse)
        for module, names in {
            asyncio: ("create_subprocess_exec", "create_subprocess_shell"),
            os: ("fork", "posix_spawn", "system"),
        }.items():
            for name in names:
                patch.setattr(module, name, refuse)
        yield
