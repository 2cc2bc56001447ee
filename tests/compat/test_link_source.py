"""The source of a link against real servers: Apache Kafka, and another Headwater."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import confluent_kafka as ck
import pytest

from harness import kafka
from harness.headwater import Headwater
from harness.patience import Patience, eventually
from headwater.client.client import Client
from headwater.client.model import NewTopic
from headwater.client.records import decode_batches
from headwater.client.security import ClientSecurity
from headwater.clock import SystemChance, SystemClock
from headwater.errors import Retriable
from headwater.link.source.errors import (
    SourceDeleted,
    SourceOvertaken,
    SourceRecreated,
    SourceRefuses,
    SourceTruncated,
)
from headwater.link.source.pieces import Piece, epoch_of
from headwater.link.source.selection import Names
from headwater.link.source.source import Answer, Discovery, Found, Source, Want, open_source
from headwater.log.batch import base_offset_of, offsets_of, split_batches
from headwater.settings.links import Links
from tests.compat.common import unavailable
from tests.support.certificates import Pair, issue
from tests.support.promise import promise
from tests.support.source_logs import at_offset
from tests.support.transactional import PLAIN, Record, Writers, read

pytestmark = pytest.mark.long

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLEANER = "log.cleaner.backoff.ms=50\n"
QUOTAS = "quota.window.num=2\n"
"""A quota counts the last seconds, and not the last eleven."""
ALTER_CLIENT_QUOTAS = 49
SETTINGS = Links(fetch_wait_ms=1)
NOW = int(time.time() * 1000)
"""Markers have the time of their broker. Records of about the same time are in the same segment of a log."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return issue(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Pair) -> Iterator[kafka.SecuredKafka]:
    if not kafka.is_installed():
        unavailable(".tools/kafka", "run scripts/setup-tools kafka")
    directory = tmp_path_factory.mktemp("source")
    own = issue(directory, "broker", authority)
    with kafka.SecuredKafka(
        directory / "kafka",
        certificate=own.certificate,
        key=own.key,
        settings=kafka.QUICK_GROUPS + CLEANER + QUOTAS,
        heap=kafka.SMALL,
    ) as started:
        yield started


@pytest.fixture(scope="module")
def theirs(server: kafka.SecuredKafka) -> str:
    return server.bootstrap


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Headwater(tmp_path_factory.mktemp("source") / "headwater") as server:
        yield server.bootstrap


@pytest.fixture(params=["kafka", "headwater"])
def address(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("theirs" if request.param == "kafka" else "ours")
    return found


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[tuple[Source, Client]]:
    """A link's client, and an ordinary one."""
    source = open_source(address, ClientSecurity, SETTINGS, clock=SystemClock(), chance=SystemChance())
    try:
        async with Client(address) as client:
            yield source, client
    finally:
        await source.close()


async def discovered(source: Source, names: Names, **partitions: int) -> Discovery:
    """What a source finds, once it shows these topics: a broker of Kafka hears of changes after its controller."""
    patience = Patience(60)
    while True:
        found = await source.discover(names)
        shown = {topic.name: topic.partitions for topic in found.topics}
        if shown == partitions:
            return found
        assert not patience.ended, f"the source shows {shown}, not {partitions}"


async def wanted(source: Source, topic: str, partition: int = 0, position: int = 0) -> Want:
    patience = Patience(60)
    while not (found := (await source.discover(Names([topic]))).topics):
        assert not patience.ended, f"the source does not show {topic}"
    return Want(topic, found[0].id, partition, position)


async def asked(source: Source, want: Want) -> Answer:
    groups, errors = await source.by_leader([want])
    return errors[want.place] if errors else (await source.fetch(groups[0]))[want.place]


async def answered(source: Source, want: Want, kind: type[Exception]) -> None:
    """Ask until the answer is of a kind: a broker of Kafka hears of changes after its controller."""
    patience = Patience(60)
    while not isinstance(answer := await asked(source, want), kind):
        assert not patience.ended, answer


async def copied(source: Source, want: Want) -> tuple[list[Piece], int]:
    """All pieces from a position on, and where the source says that its committed records end."""
    found: list[Piece] = []
    position = want.position
    while True:
        answer = await asked(source, Want(want.topic, want.topic_id, want.partition, position))
        assert isinstance(answer, Found), answer
        if not answer.pieces:
            return found, answer.end
        for piece in answer.pieces:
            assert piece.start == position < piece.next
            position = piece.next
        found += answer.pieces


async def ended(source: Source, want: Want, end: int) -> None:
    """Wait until all markers are there: Kafka writes them after it has told the producer that a transaction ended."""
    patience = Patience(60)
    while True:
        answer = await asked(source, want)
        assert isinstance(answer, Found), answer
        if answer.end == end:
            return
        assert not patience.ended, f"committed records end at {answer.end}, not at {end}"


async def batches(client: Client, topic: str, end: int) -> set[bytes]:
    """All batches of a partition as they are."""
    found: set[bytes] = set()
    position = 0
    while position < end:
        data = split_batches(await client.fetch(topic, 0, position))
        found |= {bytes(one) for one in data}
        position = base_offset_of(data[-1]) + offsets_of(data[-1])
    return found


def records(partition: int, pieces: list[Piece]) -> list[Record]:
    """The records of pieces, at the offsets that they get here."""
    return [
        (partition, r.offset, r.timestamp, r.key, r.value)
        for piece in pieces
        if piece.batch is not None
        for batch in decode_batches(at_offset(piece.batch.data, piece.start, 0))
        for r in batch.records
    ]


def produce(address: str, codec: str, topic: str, partition: int, values: list[bytes], *keys: bytes) -> None:
    """One batch of records with a codec, all of them young enough for one segment."""
    producer = ck.Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 50})
    for value, key in zip_longest(values, keys):
        producer.produce(topic, value, key, partition)
    assert producer.flush(60) == 0


@promise("N1")
def test_committed_records_of_every_codec(address: str) -> None:
    """From every position on, what a consumer of committed records gets; batches keep their bytes.

    An open transaction holds up its own partition only.
    """
    writers = Writers(address)

    async def run() -> None:
        async with opened(address) as (source, client):
            await client.create_topics([NewTopic("every", 2)])
            for codec in CODECS:
                produce(address, codec, "every", 0, [b"%s %d" % (codec.encode(), i) * 20 for i in range(4)])
                writers.write("a", "every", 0, b"a1", b"a2", timestamp=NOW + 5)
                writers.write("b", "every", 0, b"b1", timestamp=NOW + 6)
                writers.end("a", commit=codec != "gzip")
                writers.write("a", "every", 0, b"a3", timestamp=NOW + 7)
                writers.end("b", commit=codec in ("none", "lz4"))
                writers.end("a", commit=codec == "zstd")
            writers.write(PLAIN, "every", 1, b"before", timestamp=NOW)
            writers.write("open", "every", 1, b"open", timestamp=NOW)
            writers.write(PLAIN, "every", 1, b"behind", timestamp=NOW)
            want = await wanted(source, "every")
            await ended(source, want, len(CODECS) * (4 + 2 + 1 + 1 + 3))
            expected = read(address, "every", [0, 0])
            end = (await source.ends("every", [0]))[0]
            whole = await batches(client, "every", end)
            for position in range(end + 1):
                pieces, told = await copied(source, Want("every", want.topic_id, 0, position))
                assert records(0, pieces) == [r for r in expected if r[0] == 0 and r[1] >= position]
                assert told == end and (not pieces or pieces[-1].next == end)
                for piece in pieces:
                    if piece.batch is not None and piece.start > position:
                        data = piece.batch.data
                        assert at_offset(data, piece.start, epoch_of(data)) in whole
            held, told = await copied(source, Want("every", want.topic_id, 1, 0))
            assert [r[4] for r in records(1, held)] == [b"before"] and told == 1
            writers.end("open", commit=True)
            await ended(source, replace(want, partition=1), 4)
            held, told = await copied(source, Want("every", want.topic_id, 1, 0))
            assert [r[4] for r in records(1, held)] == [b"before", b"open", b"behind"] and told == 4

    asyncio.run(run())


@promise("N1")
def test_a_compacted_topic(theirs: str) -> None:
    """Records keep their offsets, in batches with holes and between them."""
    writers = Writers(theirs)
    configs = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}

    async def run() -> None:
        async with opened(theirs) as (source, client):
            await client.create_topics([NewTopic("compacted", 1, configs=configs)])
            produce(theirs, "zstd", "compacted", 0, [b"kept 0"], b"only here")
            for codec in CODECS:
                keys = [b"%d" % (i % 4) if i % 5 else b"%s %d" % (codec.encode(), i) for i in range(20)]
                produce(theirs, codec, "compacted", 0, keys, *keys)
                writers.write("tx", "compacted", 0, b"aborted", timestamp=NOW)
                writers.end("tx", commit=codec == "none")
            produce(theirs, "none", "compacted", 0, [b"in the last segment"], b"young")
            keys_left = 4 + 4 * len(CODECS) + len(["only here", "tx", "young"])
            eventually(lambda: len(read(theirs, "compacted", [0])) == keys_left, "it is compacted to its end", 60)
            expected = read(theirs, "compacted", [0])
            want = await wanted(source, "compacted")
            end = (await source.ends("compacted", [0]))[0]
            for position in range(0, end, 7):
                pieces, told = await copied(source, Want("compacted", want.topic_id, 0, position))
                assert records(0, pieces) == [r for r in expected if r[1] >= position]
                assert told == pieces[-1].next == end
            pieces, _ = await copied(source, want)
            assert any(p.batch is not None and len(records(0, [p])) < p.next - p.start for p in pieces), (
                "a sparse batch"
            )
            assert any(p.batch is None and p.next - p.start > 1 for p in pieces), "a gap"

    asyncio.run(run())


def test_a_log_that_begins_within_a_batch(address: str) -> None:
    """Records were deleted up to an offset: those before it are not copied, and a copy that is behind is stopped."""

    async def run() -> None:
        async with opened(address) as (source, client):
            await client.create_topics([NewTopic("trimmed", 1)])
            produce(address, "lz4", "trimmed", 0, [b"%d" % i for i in range(10)])
            expected = read(address, "trimmed", [0])
            await client.delete_records("trimmed", {0: 4})
            want = await wanted(source, "trimmed", position=4)
            pieces, _ = await copied(source, want)
            assert pieces[0].start == 4 and records(0, pieces) == expected[4:]
            assert await source.starts("trimmed", [0]) == {0: 4}
            behind = await asked(source, await wanted(source, "trimmed", position=3))
            assert isinstance(behind, SourceOvertaken) and behind.log_start == 4
            ahead = await asked(source, await wanted(source, "trimmed", position=11))
            assert isinstance(ahead, SourceTruncated) and ahead.end == 10
        for epoch, there in ((0, True), (5, False)):
            async with opened(address) as (source, _):
                answer = await asked(source, replace(await wanted(source, "trimmed", position=10), epoch=epoch))
                assert isinstance(answer, Found if there else SourceTruncated), (
                    "the leader knows which epochs there were"
                )

    asyncio.run(run())


def test_a_topic_that_was_deleted_and_created_anew(address: str) -> None:
    async def run() -> None:
        async with opened(address) as (source, client):
            await client.create_topics([NewTopic("renewed", 1)])
            produce(address, "none", "renewed", 0, [b"old"])
            want = await wanted(source, "renewed")
            assert len((await copied(source, want))[0]) == 1
            await client.delete_topics(["renewed"])
            await answered(source, want, SourceDeleted)
            await client.create_topics([NewTopic("renewed", 1)])
            produce(address, "none", "renewed", 0, [b"new", b"newer"])
            await answered(source, want, SourceRecreated)

    asyncio.run(run())


@promise("N3")
def test_topics_configs_and_groups(address: str) -> None:
    """What a link finds, and the offsets that groups have committed."""

    async def run() -> None:
        async with opened(address) as (source, client):
            await client.create_topics(
                [NewTopic("found-1", 3, configs={"retention.ms": "12345"}), NewTopic("found-2", 1)]
            )
            found = await discovered(source, Names(["missing"], ["found-.*", "__.*"]), **{"found-1": 3, "found-2": 1})
            assert all(t.id is not None for t in found.topics) and list(found.missing) == ["missing"]
            await client.create_partitions("found-2", 2)
            await discovered(source, Names(["found-2"]), **{"found-2": 2})
            assert [(c.name, c.value) for c in await source.configs("found-1")] == [("retention.ms", "12345")]
            await client.commit_offsets("readers", {("found-1", 2): 7, ("found-2", 0): 1})
            await client.commit_offsets("others", {("found-1", 2): 9})
            assert await source.groups(Names(patterns=["read.*"])) == ["readers"]
            assert await source.group_offsets("readers", {"found-1"}) == {("found-1", 2): 7}

    asyncio.run(run())


@promise("N4")
def test_tls_and_a_password(server: kafka.SecuredKafka, authority: Pair, tmp_path: Path) -> None:
    """A source with SASL_SSL. A wrong password and an unknown authority are told, and retried."""
    stranger = issue(tmp_path, "stranger")

    def security(ca: Pair, password: str) -> ClientSecurity:
        return ClientSecurity(
            tls=True, ca=str(ca.certificate), mechanism="SCRAM-SHA-512", user="link", password=password
        )

    async def seen(own: ClientSecurity) -> list[bytes | None] | Retriable:
        source = open_source(server.secured, lambda: own, SETTINGS, clock=SystemClock(), chance=SystemChance())
        try:
            want = await wanted(source, "secured")
            pieces, _ = await copied(source, want)
            return [record[4] for record in records(0, pieces)]
        except Retriable as error:
            return error
        finally:
            await source.close()

    async def run() -> None:
        async with Client(server.bootstrap) as client:
            await client.put_user("link", "right", ["SCRAM-SHA-512"])
            await client.create_topics([NewTopic("secured", 1)])
        produce(server.bootstrap, "zstd", "secured", 0, [b"a secret"])
        assert await seen(security(authority, "right")) == [b"a secret"]
        wrong = await seen(security(authority, "wrong"))
        assert isinstance(wrong, SourceRefuses) and "SASL_AUTHENTICATION_FAILED" in str(wrong)
        unknown = await seen(security(stranger, "right"))
        assert isinstance(unknown, SourceRefuses) and "CERTIFICATE_VERIFY_FAILED" in str(unknown)
        assert "right" not in str(unknown) and "wrong" not in str(wrong)

    asyncio.run(run())


def test_a_quota_slows_a_link_down(theirs: str) -> None:
    """It is waited for, and is no failure: Kafka answers a throttled fetch without any partition."""
    settings = Links(fetch_wait_ms=1, fetch_bytes=20_000, fetch_total_bytes=20_000)
    values = [b"%02d" % number * 5_000 for number in range(8)]

    async def run() -> None:
        async with Client(theirs) as client:
            await client.create_topics([NewTopic("throttled", 1)])
            producer = ck.Producer({"bootstrap.servers": theirs, "batch.num.messages": 1})
            for value in values:
                producer.produce("throttled", value, partition=0)
            assert producer.flush(60) == 0
            entry = {
                "entity": [{"entity_type": "client-id", "entity_name": "slow"}],
                "ops": [{"key": "consumer_byte_rate", "value": 30_000.0, "remove": False}],
            }
            connection = await client.any_broker()
            await connection.request(ALTER_CLIENT_QUOTAS, entries=[entry], validate_only=False)
        own = ClientSecurity()
        source = open_source(
            theirs, lambda: own, settings, clock=SystemClock(), chance=SystemChance(), client_id="slow"
        )
        try:
            pieces, end = await copied(source, await wanted(source, "throttled"))
        finally:
            await source.close()
        assert [record[4] for record in records(0, pieces)] == values
        assert end == len(values) and source.throttled_s > 0

    asyncio.run(run())
