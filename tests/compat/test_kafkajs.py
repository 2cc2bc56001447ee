"""kafkajs. It only writes here: it reads in groups only."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compat.common import Record, tool, unavailable
from tests.compat.contract import WriterContract
from tests.compat.program import Program

CLIENT = Path(__file__).parent / "js" / "client.js"


class Kafkajs(Program):
    def as_written(self, record: Record) -> Record:
        """Its headers are an object, which keeps duplicates together, and it fails on a null one."""
        names = dict.fromkeys(name for name, _ in record.headers)
        headers = [(name, value or b"") for name in names for other, value in record.headers if other == name]
        return replace(record, headers=tuple(headers))


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Kafkajs]:
    node = shutil.which("node") or unavailable("node", "install Node.js, 18 or later")
    modules = tool("compat/js/node_modules")
    with Kafkajs([node, str(CLIENT)], bootstrap, {"NODE_PATH": str(modules)}) as program:
        yield program


class TestWriter(WriterContract):
    pass
