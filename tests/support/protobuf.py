"""Protobuf schemas in unit tests: the compiler runs in the test's own process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.schemas.protobuf import compiling, protoc


def in_process(directory: str, well_known: str, name: str, output: str) -> int:
    """Run the compiler here, with what it prints in the file of its messages."""
    kept = os.dup(2)
    with Path(directory, ".messages").open("wb") as messages:
        os.dup2(messages.fileno(), 2)
        try:
            return protoc.compile_file(directory, well_known, name, output)
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def compile_in_process(patch: pytest.MonkeyPatch) -> None:
    """Let the compiler run in the process of a test that may not start another one."""
    patch.setattr(compiling, "child", in_process)
