"""Which of Apache Kafka's test classes run: those on a ClusterInstance that test requests, and all of the clients'."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.compat.common import tool

JARS = {
    "kafka_2.13-*-test.jar": re.compile(r"(unit/)?kafka/server/\w+RequestTest\.class"),
    "kafka-clients-integration-tests-*-test.jar": re.compile(r"[\w/]+Test\.class"),
}
"""Jars with tests, and the names of the classes that count."""
ANNOTATION = re.compile(rb"Lorg/apache/kafka/common/test/api/Cluster(Test|Tests|Template);")
"""What a class with a test on a ClusterInstance has in it."""


def classes() -> list[str]:
    """The names of all classes, with their packages."""
    libs = tool("apache/libs")
    return sorted(name for pattern, counts in JARS.items() for jar in libs.glob(pattern) for name in _in(jar, counts))


def simple(name: str) -> str:
    """The name of a class without its package."""
    return name.rpartition(".")[2]


def _in(jar: Path, counts: re.Pattern[str]) -> Iterator[str]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if counts.fullmatch(name) and ANNOTATION.search(archive.read(name)):
                yield name.removesuffix(".class").replace("/", ".")
