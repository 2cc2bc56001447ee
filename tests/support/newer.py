"""A build that knows a feature level more than this one."""

from __future__ import annotations

from types import ModuleType

import pytest

from headwater.replica import levels, membership
from headwater.state import machine
from headwater.state.machine import LEVEL, LEVELS

NEXT, BUILD = LEVEL + 1, "9.9.9"
"""A made-up level, and the first build that knows it."""


def be_newer(monkeypatch: pytest.MonkeyPatch, *more: ModuleType) -> None:
    """Let this process be such a build. `more` are further modules that have the newest level by name."""
    for module in (machine, levels, membership, *more):
        monkeypatch.setattr(module, "LEVEL", NEXT)
    for module in (machine, levels):
        monkeypatch.setattr(module, "LEVELS", {**LEVELS, NEXT: BUILD})
