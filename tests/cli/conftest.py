"""A real server for the commands."""

from collections.abc import Iterator

import pytest

from tests.support.running import bootstrap_address


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server: HEADWATER_TEST_BOOTSTRAP if set, otherwise a Headwater of our own."""
    with bootstrap_address(tmp_path_factory.mktemp("headwater-cli")) as address:
        yield address
