"""Servers under test: a `headwater up`, or those that HEADWATER_TEST_BOOTSTRAP and HEADWATER_TEST_CLUSTER select.

With HEADWATER_TEST_CLUSTER the ledger and the objects have servers of their own; see `harness.stores`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.cluster import Cluster
from harness.headwater import Headwater
from harness.stores import LEDGERS

VARIABLE = "HEADWATER_TEST_CLUSTER"
"""Tests that start a Headwater start it on this kind of ledger: sqlite, journal, etcd, oxia or bucket."""


def wanted() -> str:
    """The kind of ledger that the environment selects; empty for an embedded Headwater."""
    kind = os.environ.get(VARIABLE, "")
    if kind and kind not in LEDGERS:
        raise ValueError(f"{VARIABLE} is {kind!r}; known are {', '.join(LEDGERS)}")
    return kind


class Running(Headwater):
    """A Headwater on the stores that the environment selects, unless the test names some."""

    def __init__(self, directory: Path, *, ledger: str = "", **options: Any) -> None:
        super().__init__(directory, ledger=ledger or wanted(), **options)


@contextmanager
def bootstrap_address(directory: Path, settings: str = "") -> Iterator[str]:
    """The address of the server under test. A Headwater that is started for it has its data below the directory."""
    given = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
    if given:
        yield given
    elif kind := wanted():
        with Cluster(directory, kind, settings=settings) as cluster:
            yield cluster.bootstrap.split(",")[0]  # any broker names the others
    else:
        with Headwater(directory, settings=settings) as server:
            yield server.bootstrap
