"""franz-go."""

from collections.abc import Iterator

import pytest

from tests.compat.common import tool
from tests.compat.contract import ReaderContract, WriterContract
from tests.compat.program import Program


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Program]:
    with Program([str(tool("compat/franz"))], bootstrap) as program:
        yield program


class TestWriter(WriterContract):
    pass


class TestReader(ReaderContract):
    pass
