"""Servers that the conformance tests of one run share. Every test takes a namespace of its own on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.running import needs
from tests.support import etcd


@pytest.fixture(scope="session")
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd.EtcdCluster]:
    """Three members that no test harms."""
    needs("etcd: run `make tools`", etcd.PROGRAM.exists())
    with etcd.EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster
