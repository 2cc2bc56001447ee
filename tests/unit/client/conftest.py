"""A real server for the client's tests."""

from collections.abc import Iterator

import pytest

from tests.support.server import bootstrap_address


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server: HEADWATER_TEST_BOOTSTRAP if set, otherwise a Headwater of our own."""
    with bootstrap_address(tmp_path_factory.mktemp("headwater-client")) as address:
        yield address
