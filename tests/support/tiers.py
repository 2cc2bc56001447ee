"""Which tests a tier runs: `--tier test` or `--tier full`; without it, all of them. `tests/tiers.toml` says which."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.tools import ROOT

TEST, FULL, ALL = "test", "full", "all"
LIST = ROOT / "tests" / "tiers.toml"


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tier of each test file, by its path, and tests of the tier `full` in files of the tier `test`."""

    files: Mapping[str, str]
    full_tests: frozenset[str]

    def of(self, nodeid: str) -> str:
        """The tier of a test. A name without brackets stands for every parameter of a test."""
        if nodeid in self.full_tests or nodeid.partition("[")[0] in self.full_tests:
            return FULL
        return self.files.get(nodeid.partition("::")[0], TEST)

    def has(self, file: str, tier: str) -> bool:
        """Whether a test of this file is in the tier. Nothing imports a file that has none."""
        found = self.files.get(file, TEST)
        return found == tier or (tier == FULL and any(name.startswith(f"{file}::") for name in self.full_tests))


def listed(path: Path = LIST) -> Iterator[tuple[str, str]]:
    """Every file that the list names, with its tier, as often as it is named."""
    for folder, tiers in tomllib.loads(path.read_text())["files"].items():
        for tier, names in tiers.items():
            for name in names:
                yield f"{folder}/{name}", tier


def read(path: Path = LIST) -> Tiers:
    return Tiers(dict(listed(path)), frozenset(tomllib.loads(path.read_text())["full_tests"]))


class Selection:
    """Collects the tests of one tier only."""

    def __init__(self, tier: str, tiers: Tiers) -> None:
        self._tier = tier
        self._tiers = tiers

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if not collection_path.match("test_*.py") or not collection_path.is_relative_to(ROOT):
            return None
        # Imports of the tier `full` may need libraries that are not there.
        return True if not self._tiers.has(collection_path.relative_to(ROOT).as_posix(), self._tier) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept, left = parted(items, self._tier, self._tiers)
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = kept


def parted(items: Sequence[pytest.Item], tier: str, tiers: Tiers) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of a tier, and the others."""
    kept = [item for item in items if tiers.of(item.nodeid) == tier]
    return kept, [item for item in items if tiers.of(item.nodeid) != tier]
