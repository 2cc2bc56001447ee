"""The Java client of Apache Kafka."""

import shutil
from collections.abc import Iterator

import pytest

from harness.jvm import OF_KAFKA
from tests.compat.common import TOOLS, tool, unavailable
from tests.compat.contract import ReaderContract, WriterContract
from tests.compat.program import Program


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Program]:
    java = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    classes = tool("compat/java/CompatClient.class").parent
    command = [java, *OF_KAFKA, "-Xmx256m", "-cp", f"{TOOLS / 'kafka/libs'}/*:{classes}", "CompatClient"]
    with Program(command, bootstrap) as program:
        yield program


class TestWriter(WriterContract):
    pass


class TestReader(ReaderContract):
    pass
