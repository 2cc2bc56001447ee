"""The server under test, and the fixtures that the contracts ask for.

A test module gives `client`. A client that only reads or only writes overrides `writer` or `reader`.
"""

import functools
from collections.abc import Iterator

import pytest

from tests.compat.common import Reader, Writer
from tests.compat.contract import WrittenOnce, write_sample
from tests.compat.librdkafka import Librdkafka
from tests.support.running import bootstrap_address

SHORT_SESSIONS = """\
[groups]
initial_rebalance_delay_ms = 100
min_session_timeout_ms = 4000
consumer_session_timeout_ms = 4000
consumer_heartbeat_interval_ms = 1000
"""
"""Groups start soon, and miss soon who has died. Members of KIP-848 groups bring no time-outs of their own."""


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server: HEADWATER_TEST_BOOTSTRAP if set, otherwise a Headwater of our own."""
    with bootstrap_address(tmp_path_factory.mktemp("headwater"), SHORT_SESSIONS) as address:
        yield address


@pytest.fixture(scope="session")
def reference(bootstrap: str) -> Librdkafka:
    """The client that checks what the others wrote, and writes what the others read."""
    return Librdkafka(bootstrap)


@pytest.fixture(scope="module")
def writer(client: Writer) -> Writer:
    return client


@pytest.fixture(scope="module")
def reader(client: Reader) -> Reader:
    return client


@pytest.fixture(scope="module")
def written(writer: Writer) -> WrittenOnce:
    return functools.cache(functools.partial(write_sample, writer))


@pytest.fixture(scope="session")
def written_by_reference(reference: Librdkafka) -> WrittenOnce:
    return functools.cache(functools.partial(write_sample, reference))
