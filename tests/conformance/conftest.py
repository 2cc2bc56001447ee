"""Servers that the conformance tests of one run share. Every test takes a namespace of its own on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import etcd, oxia
from harness.tools import needs


@pytest.fixture(scope="session")
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd.EtcdCluster]:
    """Three members that no test harms."""
    needs("etcd: run `make tools`", etcd.PROGRAM.exists())
    with etcd.EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def oxia_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oxia.OxiaServer]:
    """One server that no test harms. It has three shards, so that domains lie in different ones."""
    needs("Oxia: run `make tools`", oxia.PROGRAM.exists())
    with oxia.OxiaServer(tmp_path_factory.mktemp("oxia"), shards=3) as server:
        yield server
