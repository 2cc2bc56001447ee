"""What the server recompressed, every kind of client reads."""

import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from harness.jvm import OF_KAFKA
from tests.compat.common import CODECS, PARTITION, PARTITIONS, SAMPLE, TOOLS, check, new_topic, tool, unavailable
from tests.compat.librdkafka import Librdkafka
from tests.compat.program import Program
from tests.compat.wire import fetch_batches
from tests.support.promise import promise

PROMISES = ("K15",)


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Program]:
    java = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    classes = tool("compat/java/CompatClient.class").parent
    command = [java, *OF_KAFKA, "-Xmx256m", "-cp", f"{TOOLS / 'kafka/libs'}/*:{classes}", "CompatClient"]
    with Program(command, bootstrap) as program:
        yield program


@promise("K15")
@pytest.mark.parametrize("stored", CODECS)
def test_recompressed_batches(bootstrap: str, client: Program, reference: Librdkafka, stored: str) -> None:
    """Into every codec, out of one that differs."""
    topic = new_topic(f"stored-{stored}")
    config = {"compression.type": "uncompressed" if stored == "none" else stored}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)
    sent = "zstd" if stored == "gzip" else "gzip"
    reference.write(topic, PARTITION, sent, SAMPLE)
    assert {batch.codec for batch in fetch_batches(bootstrap, topic, PARTITION)} == {stored}
    for reader in (client, reference):
        check(reader.read(topic, {PARTITION: 0}, len(SAMPLE)), [reference.as_written(record) for record in SAMPLE])
