"""The client of a source: what it reads, and what it makes of leaders that move and topics that are gone."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.client.errors import AnswerLost, NotTrusted, ProtocolError, Unreachable
from headwater.client.fetching import Place
from headwater.client.model import Config, ConfigSource, GroupListing
from headwater.client.security import ClientSecurity
from headwater.clock import SystemChance, SystemClock
from headwater.errors import ConfigError, HeadwaterError, NotAllowed, Retriable
from headwater.link.source import leaders
from headwater.link.source import source as module
from headwater.link.source.errors import (
    SourceDamaged,
    SourceDeleted,
    SourceOvertaken,
    SourceRecreated,
    SourceRefuses,
    SourceStops,
    SourceTruncated,
    SourceUnreadable,
)
from headwater.link.source.selection import Names
from headwater.link.source.source import Answer, Found, Source, Want, open_source
from headwater.settings.links import Links
from tests.support.batches import Rec
from tests.support.source_clusters import ModelCluster, ModelTopic
from tests.support.source_logs import ABORT, SourceLog

ALONE = (0, -1)
"""The session of a fetch without one."""


def fill(log: SourceLog, count: int = 3) -> None:
    for i in range(count):
        log.append([(0, Rec(b"value %d" % i))], 1)


def want(cluster: ModelCluster, topic: str = "t", partition: int = 0, position: int = 0) -> Want:
    return Want(topic, cluster.topics[topic].id, partition, position)


async def read(source: Source, *wants: Want) -> dict[Place, Answer]:
    """One round: leaders, then one fetch of each."""
    groups, errors = await source.by_leader(wants)
    answers: dict[Place, Answer] = dict(errors)
    for group in groups:
        answers.update(await source.fetch(group))
    assert answers.keys() == {one.place for one in wants}
    return answers


def one(source: Source, wanted: Want) -> Answer:
    return asyncio.run(read(source, wanted))[wanted.place]


def found(source: Source, wanted: Want) -> Found:
    answer = one(source, wanted)
    assert isinstance(answer, Found), answer
    return answer


def after(wanted: Want, answer: Found) -> Want:
    return replace(wanted, position=answer.pieces[-1].next)


def retried(answer: Answer, *words: str) -> None:
    assert isinstance(answer, Retriable) and not isinstance(answer, SourceStops), answer
    assert all(word in str(answer) for word in words), answer


@pytest.fixture
def cluster() -> ModelCluster:
    made = ModelCluster(3)
    for partition in made.create("t", 5).partitions:
        fill(partition.log)
    fill(made.create("u", 1).partitions[0].log, 2)
    return made


def test_partitions_are_fetched_by_leader(cluster: ModelCluster) -> None:
    """One fetch of each leader, over all topics, each partition from its position on."""
    wants = [want(cluster, "t", p, p % 2) for p in range(5)] + [want(cluster, "u")]
    answers = asyncio.run(read(cluster.source(), *wants))
    assert sorted(len(fetch) for fetch in cluster.fetches) == [1, 2, 3]
    assert {p for fetch in cluster.fetches for p in fetch} == {(w.topic, w.partition, w.position) for w in wants}
    for wanted in wants:
        answer = answers[wanted.place]
        assert isinstance(answer, Found)
        size = 3 if wanted.topic == "t" else 2
        assert (answer.position, answer.end, answer.high_watermark, answer.log_start) == (
            wanted.position,
            size,
            size,
            0,
        )
        assert [p.next for p in answer.pieces] == list(range(wanted.position + 1, size + 1))


def test_batches_are_opened_away_from_the_event_loop(cluster: ModelCluster) -> None:
    """Only the batch in which a copy begins is opened. If it opens to too much its topic stops, and others go on."""
    for name, text in (("small", b"a"), ("huge", b"a" * 5_000)):
        log = cluster.create(name).partitions[0].log
        log.append([(0, Rec(text)), (1, Rec(text)), (2, Rec(b"kept"))], 3, codec=4)
    opened: list[str] = []

    async def away(call: Callable[..., Any], *arguments: Any) -> Any:
        opened.append(call.__name__)
        return call(*arguments)

    source = cluster.source(Links(opened_bytes=2_000), away)
    whole, small, huge = want(cluster, "t", 0), want(cluster, "small", position=2), want(cluster, "huge", position=2)
    answers = asyncio.run(read(source, whole, small, huge))
    assert opened == ["pieces", "pieces"]
    copied = answers[small.place]
    assert isinstance(copied, Found) and [(p.start, p.next) for p in copied.pieces] == [(2, 3)]
    assert isinstance(answers[whole.place], Found)
    stopped = answers[huge.place]
    assert isinstance(stopped, SourceUnreadable) and "offset 2" in str(stopped) and "2000 bytes" in str(stopped)


def test_a_leader_with_many_partitions_has_several_groups(
    cluster: ModelCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PARTITIONS", 1)
    assert len(asyncio.run(read(cluster.source(), *(want(cluster, "t", p) for p in range(5))))) == 5
    assert [len(fetch) for fetch in cluster.fetches] == [1] * 5


def test_the_end_is_where_an_open_transaction_begins(cluster: ModelCluster) -> None:
    log = cluster.topics["u"].partitions[0].log
    log.append([(0, Rec(b"open"))], 1, producer=7, transactional=True)
    fill(log, 1)
    answer = found(cluster.source(), want(cluster, "u"))
    assert (answer.end, answer.high_watermark, answer.pieces[-1].next) == (2, 4, 2)


def test_a_source_without_ids(cluster: ModelCluster) -> None:
    """Old brokers: topics go by name."""
    cluster.fetch_version = 11
    fill(cluster.create("old", ids=False).partitions[0].log)
    assert len(found(cluster.source(), want(cluster, "old")).pieces) == 3
    assert len(found(cluster.source(), want(cluster, "t")).pieces) == 3


def test_a_leader_that_moved_is_found(cluster: ModelCluster) -> None:
    """The first fetch fails, and the next one goes to the new leader. The history is checked there once."""
    source, wanted = cluster.source(), want(cluster)
    answer = found(source, wanted)
    partition = cluster.topics["t"].partitions[0]
    partition.leader, partition.epoch = 1, 4
    partition.log.epoch = 4
    fill(partition.log, 1)
    wanted = after(wanted, answer)
    retried(one(source, wanted), "NOT_LEADER_OR_FOLLOWER")
    answer = found(source, wanted)
    assert [(p.start, p.epoch) for p in answer.pieces] == [(3, 4)] and cluster.epoch_questions == 1
    assert found(source, after(wanted, answer)).pieces == [] and cluster.epoch_questions == 1


def test_a_leader_of_another_term_is_not_read(cluster: ModelCluster) -> None:
    """Not even if it is the same broker: its log may have been cut in between."""
    source, wanted = cluster.source(), want(cluster)
    answer = found(source, wanted)
    cluster.topics["t"].partitions[0].cut(1)
    fill(cluster.topics["t"].partitions[0].log, 9)
    wanted = after(wanted, answer)
    retried(one(source, wanted), "FENCED_LEADER_EPOCH")
    stopped = one(source, wanted)
    assert isinstance(stopped, SourceTruncated) and stopped.end == 1 and stopped.word == "truncated"
    assert "other records from offset 1 on; it was copied up to 3" in str(stopped)
    assert cluster.fetches[-1] == [("t", 0, 3)], "the fetch that was refused was the last"


def test_a_history_is_checked_by_the_caller_s_epoch(cluster: ModelCluster) -> None:
    """After a restart of the link; without an epoch only the length of the log is known."""
    partition = cluster.topics["t"].partitions[0]
    partition.cut(1)
    fill(partition.log, 5)
    wanted = want(cluster, position=3)
    assert isinstance(one(cluster.source(), replace(wanted, epoch=0)), SourceTruncated)
    assert len(found(cluster.source(), wanted).pieces) == 3
    undefined = one(cluster.source(), replace(wanted, epoch=7))
    assert isinstance(undefined, SourceTruncated) and undefined.end == -1


def test_a_longer_log_without_the_epoch_has_other_records(cluster: ModelCluster) -> None:
    """A leader of before comes back, uncleanly: its log is long enough, and has nothing of what was copied last."""
    partition = cluster.topics["t"].partitions[0]
    fill(partition.log, 2)
    partition.epoch = 5
    wanted = replace(want(cluster, position=3), epoch=4)
    stopped = one(cluster.source(), wanted)
    assert isinstance(stopped, SourceTruncated) and "nothing of leader epoch 4" in str(stopped)
    cluster.refused["t"] = ErrorCode.topic_authorization_failed
    assert isinstance(one(cluster.source(), wanted), SourceTruncated), "whether it is compacted is not known"
    cluster.refused["t"] = ErrorCode.request_timed_out
    retried(one(cluster.source(), wanted), "REQUEST_TIMED_OUT")
    assert not cluster.fetches


def test_compaction_may_have_removed_an_epoch(cluster: ModelCluster) -> None:
    """A replica that was made after that has never heard of it."""
    compacted(cluster)
    partition = cluster.topics["t"].partitions[0]
    fill(partition.log, 2)
    partition.epoch = 5
    assert len(found(cluster.source(), replace(want(cluster, position=3), epoch=4)).pieces) == 2


def test_an_epoch_that_is_known_up_to_a_gap(cluster: ModelCluster) -> None:
    """A gap at the end of a copy may have ended under a later term: only what was copied must be there."""
    partition = cluster.topics["t"].partitions[0]
    partition.epoch = partition.log.epoch = 4
    partition.log.append([(0, Rec(b"gone"))], 1, producer=7, transactional=True)
    partition.log.finish(7, ABORT)
    wanted = replace(want(cluster, position=5), epoch=0)
    assert isinstance(one(cluster.source(), wanted), SourceTruncated)
    assert found(cluster.source(), replace(wanted, epoch_end=3)).pieces == []
    partition.cut(2)
    for _ in range(3):
        partition.log.append([(0, Rec(b"other"))], 1)
    assert isinstance(one(cluster.source(), replace(wanted, epoch_end=3)), SourceTruncated)


def test_a_position_that_went_back_has_its_epoch(cluster: ModelCluster) -> None:
    """The source remembers under which epochs it read, also if the caller forgets."""
    source, wanted = cluster.source(), want(cluster)
    found(source, wanted)
    cluster.topics["t"].partitions[0].cut(1)
    source.forget("t")
    assert isinstance(one(source, replace(wanted, position=2)), SourceTruncated)
    source.leave(wanted.place)
    source.forget("t")
    stopped = one(source, replace(wanted, position=2))
    assert isinstance(stopped, SourceTruncated) and "ends at offset 1" in str(stopped), "now by its length alone"


def test_a_source_that_cannot_tell_epochs(cluster: ModelCluster) -> None:
    cluster.epochs_served = False
    assert found(cluster.source(), replace(want(cluster, position=3), epoch=0)).pieces == []


def test_an_epoch_is_asked_of_a_leader_that_moves_again(cluster: ModelCluster) -> None:
    source = cluster.source()
    wanted = replace(want(cluster, position=3), epoch=0)

    async def moved() -> Answer:
        groups, _ = await source.by_leader([wanted])
        cluster.topics["t"].partitions[0].epoch += 1
        return (await source.fetch(groups[0]))[wanted.place]

    retried(asyncio.run(moved()), "FENCED_LEADER_EPOCH")
    assert not cluster.fetches and found(source, wanted).pieces == []


def test_a_log_that_is_shorter_was_truncated(cluster: ModelCluster) -> None:
    stopped = one(cluster.source(), want(cluster, position=4))
    assert isinstance(stopped, SourceTruncated) and stopped.end == 3
    assert str(stopped) == "partition 0 of topic 't' of the source ends at offset 3, but was copied up to 4"


def test_retention_that_overtakes_the_copy(cluster: ModelCluster) -> None:
    cluster.topics["t"].partitions[0].log.delete_before(2)
    source = cluster.source()
    stopped = one(source, want(cluster, position=1))
    assert isinstance(stopped, SourceOvertaken) and stopped.log_start == 2 and stopped.word == "overtaken"
    assert "begins at offset 2; records from 1 on were removed" in str(stopped)
    assert found(source, want(cluster, position=stopped.log_start)).log_start == 2


def test_retention_that_overtakes_many_partitions(cluster: ModelCluster) -> None:
    for partition in cluster.topics["t"].partitions[:3]:
        partition.log.delete_before(2)
    answers = asyncio.run(read(cluster.source(), *(want(cluster, "t", p, 1) for p in range(5))))
    assert [type(answers["t", p]) for p in range(5)] == [SourceOvertaken] * 3 + [Found] * 2


def test_a_topic_that_was_deleted(cluster: ModelCluster) -> None:
    """Whether its leaders were known or not."""
    known, fresh, wanted = cluster.source(), cluster.source(), want(cluster)
    found(known, wanted)
    del cluster.topics["t"]
    for source in (known, fresh):
        stopped = one(source, wanted)
        assert isinstance(stopped, SourceDeleted) and stopped.word == "deleted"
        assert str(stopped) == "the source has no topic 't' any more"


def test_brokers_are_asked_once_for_all_partitions_of_a_topic(cluster: ModelCluster) -> None:
    wants = [want(cluster, "t", p) for p in range(5)]
    del cluster.topics["t"]
    answers = asyncio.run(read(cluster.source(), *wants))
    assert all(isinstance(answer, SourceDeleted) for answer in answers.values())
    assert cluster.metadata_questions == 3


def test_a_broker_that_never_answers_has_no_say(cluster: ModelCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nobody would ever hear that the topic is gone."""
    monkeypatch.setattr(leaders, "ASK_SECONDS", 0.01)
    cluster.brokers[2].silent = True
    wanted = want(cluster)
    del cluster.topics["t"]
    assert isinstance(one(cluster.source(), wanted), SourceDeleted)


@pytest.mark.parametrize("version", [11, 17])
def test_a_topic_that_was_created_anew(cluster: ModelCluster, version: int) -> None:
    """Its new records are never read, whatever the version, once its id is seen."""
    cluster.fetch_version = version
    source, wanted = cluster.source(), want(cluster)
    found(source, wanted)
    fill(cluster.create("t", 5).partitions[0].log, 9)
    source.forget("t")
    stopped = one(source, wanted)
    assert isinstance(stopped, SourceRecreated) and stopped.word == "recreated" and "another history" in str(stopped)
    assert len(cluster.fetches) == 1


def test_a_new_topic_of_the_name_is_not_read_by_id(cluster: ModelCluster) -> None:
    """Nor if the link does not know yet that the topic is another one."""
    source, wanted = cluster.source(), want(cluster)
    found(source, wanted)
    fill(cluster.create("t", 5).partitions[0].log, 9)
    assert isinstance(one(source, wanted), SourceRecreated)


def test_a_broker_that_is_behind_does_not_end_a_link(cluster: ModelCluster) -> None:
    """It does not know the topic, or knows one that was deleted; another broker has the linked one."""
    wanted = want(cluster)
    for stale in (None, ModelTopic(uuid.uuid4(), cluster.topics["t"].partitions)):
        cluster.brokers[0].stale["t"] = stale
        source = cluster.source()
        retried(one(source, wanted))
        cluster.brokers[0].stale.clear()
        assert found(source, wanted).pieces


def test_a_new_partition_that_a_broker_does_not_know_yet(cluster: ModelCluster) -> None:
    """It is waited for. Topics with ids never lose partitions; others were created anew."""
    source, own = cluster.source(), cluster.topics["t"]
    wanted = replace(want(cluster), partition=5)
    retried(one(source, wanted))
    own.partitions.append(own.partitions[0])
    assert found(source, wanted).pieces, "the leaders were asked for again"
    assert isinstance(one(cluster.source(), Want("t", None, 9, 0)), SourceRecreated)


def test_a_partition_without_a_leader_does_not_hold_up_others(cluster: ModelCluster) -> None:
    cluster.topics["t"].partitions[0].leader = -1
    wants = [want(cluster, "t", 0), want(cluster, "t", 1), want(cluster, "u")]
    answers = asyncio.run(read(cluster.source(), *wants))
    retried(answers["t", 0], "has no leader now")
    assert isinstance(answers["t", 1], Found) and isinstance(answers["u", 0], Found)


def test_rights_may_be_mended(cluster: ModelCluster) -> None:
    """A refusal is told and retried."""
    source = cluster.source()
    cluster.fetch_errors["t", 0] = ErrorCode.topic_authorization_failed
    answer = one(source, want(cluster))
    assert isinstance(answer, SourceRefuses)
    retried(answer, "TOPIC_AUTHORIZATION_FAILED")
    cluster.fetch_errors.clear()
    cluster.topics["t"].error = ErrorCode.topic_authorization_failed
    source.forget("t")
    assert isinstance(one(source, want(cluster)), SourceRefuses)
    cluster.topics["t"].error = ErrorCode.none
    cluster.brokers[0].stale["t"] = None
    cluster.brokers[1].stale["t"] = replace(cluster.topics["t"], error=ErrorCode.topic_authorization_failed)
    assert isinstance(one(source, want(cluster)), SourceRefuses), "one that may not tell does not end a link"


def test_a_range_that_is_right_again_is_retried(cluster: ModelCluster) -> None:
    cluster.fetch_errors["t", 0] = ErrorCode.offset_out_of_range
    retried(one(cluster.source(), want(cluster)), "OFFSET_OUT_OF_RANGE")


@pytest.mark.parametrize("failure", [Unreachable("no connection"), AnswerLost("lost"), ProtocolError("odd")])
def test_a_leader_that_does_not_answer(cluster: ModelCluster, failure: HeadwaterError) -> None:
    """The others are read. The leader is looked up again before the next fetch."""
    source = cluster.source()
    asyncio.run(read(source, want(cluster, "t", 1)))
    cluster.brokers[1].failure = failure  # type: ignore[assignment]
    with pytest.raises(Retriable):
        one(source, want(cluster, "t", 1))
    cluster.topics["t"].partitions[1].leader = 2
    assert found(source, want(cluster, "t", 1)).pieces


def test_a_source_that_does_not_answer(cluster: ModelCluster) -> None:
    source, wanted = cluster.source(), want(cluster)
    for failure, kind in ((Unreachable("no connection"), Unreachable), (NotTrusted("a certificate"), SourceRefuses)):
        for broker in cluster.brokers.values():
            broker.failure = failure
        with pytest.raises(kind):
            one(source, wanted)
        with pytest.raises(kind):
            asyncio.run(source.discover(Names(["t"])))


def test_nothing_is_judged_while_no_broker_answers(cluster: ModelCluster) -> None:
    """A topic is not gone because the brokers that would know are."""
    source, wanted = cluster.source(), want(cluster)
    found(source, wanted)

    async def failing() -> Answer:
        groups, _ = await source.by_leader([wanted])
        cluster.fetch_errors["t", 0] = ErrorCode.unknown_topic_or_partition
        answers = source.fetch(groups[0])
        task = asyncio.ensure_future(answers)
        await asyncio.sleep(0)
        for broker in cluster.brokers.values():
            broker.failure = AnswerLost("gone")
        return (await task)[wanted.place]

    cluster.brokers[0].stale["t"] = None
    retried(asyncio.run(failing()))


def test_a_judgement_has_a_limit(cluster: ModelCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that does not say what became of a partition holds up no others."""
    monkeypatch.setattr(module, "JUDGE_SECONDS", 0.0)
    cluster.fetch_errors["t", 0] = ErrorCode.offset_out_of_range

    async def hanging(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    source = cluster.source()
    monkeypatch.setattr(source, "_offsets", hanging)
    answers = asyncio.run(read(source, want(cluster, "t", 0), want(cluster, "t", 3)))
    retried(answers["t", 0])
    assert isinstance(answers["t", 3], Found)


def test_bytes_that_cannot_be_copied_stop_their_partition_only(cluster: ModelCluster) -> None:
    broken, damaged = (cluster.topics["t"].partitions[p].log.batches[0] for p in (0, 3))
    broken.data = broken.data[:16] + b"\x01" + broken.data[17:]
    damaged.data = damaged.data[:-1] + b"!"
    answers = asyncio.run(read(cluster.source(), want(cluster, "t", 0), want(cluster, "t", 3), want(cluster, "u")))
    assert isinstance(answers["t", 0], SourceUnreadable) and answers["t", 0].word == "unreadable"
    assert isinstance(answers["t", 3], SourceDamaged)
    retried(answers["t", 3])
    assert isinstance(answers["u", 0], Found)


def test_topics_starts_and_ends(cluster: ModelCluster) -> None:
    log = cluster.topics["u"].partitions[0].log
    log.delete_before(1)
    log.append([(0, Rec(b"open"))], 1, producer=7, transactional=True)
    source = cluster.source()

    async def ask() -> None:
        found = await source.discover(Names(["u", "gone"], ["t+"]))
        assert [(t.name, t.id, t.partitions) for t in found.topics] == [
            ("t", cluster.topics["t"].id, 5),
            ("u", cluster.topics["u"].id, 1),
        ]
        assert list(found.missing) == ["gone"]
        assert await source.starts("u", [0]) == {0: 1} and await source.ends("u", [0]) == {0: 2}
        assert await source.starts("t", [1, 4]) == {1: 0, 4: 0}
        with pytest.raises(Retriable, match="UNKNOWN_TOPIC"):
            await source.ends("gone", [0])
        await source.close()

    asyncio.run(ask())
    assert cluster.closed == 2


def test_configs_of_a_topic(cluster: ModelCluster) -> None:
    """Only those that are set for the topic itself."""
    cluster.configs = [
        Config(f"config-{kind.name}", "1", kind, False, None) for kind in (ConfigSource.TOPIC, ConfigSource.DEFAULT)
    ]
    assert [c.name for c in asyncio.run(cluster.source().configs("t"))] == ["config-TOPIC"]


def test_groups_of_consumers(cluster: ModelCluster) -> None:
    """Not those of Connect, nor share groups; and only offsets of linked topics."""
    cluster.groups = [
        GroupListing("app-1", "Stable", "Classic", "consumer"),
        GroupListing("app-2", "Empty", "Consumer", "consumer"),
        GroupListing("app-3", "Empty", "", ""),
        GroupListing("app-connect", "Stable", "Classic", "connect"),
        GroupListing("app-share", "Stable", "Share", "share"),
        GroupListing("other", "Stable", "Classic", "consumer"),
    ]
    cluster.offsets = {"app-1": {("t", 0): 5, ("unlinked", 0): 7}}

    async def ask() -> None:
        source = cluster.source()
        assert await source.groups(Names(patterns=["app-.*"])) == ["app-1", "app-2", "app-3"]
        assert await source.group_offsets("app-1", {"t", "u"}) == {("t", 0): 5}

    asyncio.run(ask())


def test_a_source_by_its_address() -> None:
    """Nothing is connected before the first question, and a question does not wait for long."""
    settings = Links(connect_ms=1_000)

    async def ask() -> None:
        source = open_source("127.0.0.1:1", ClientSecurity, settings, clock=SystemClock(), chance=SystemChance())
        assert "0 partitions read" in repr(source)
        with pytest.raises(Unreachable, match=r"no connection to 127\.0\.0\.1:1"):
            await source.discover(Names(["t"]))
        await source.close()

    asyncio.run(ask())


def test_secrets_are_read_for_every_connection() -> None:
    """What cannot be read at the start is an error of the link; later it is waited for."""
    flaw: ConfigError | NotAllowed | None = None
    read = 0

    def secrets() -> ClientSecurity:
        nonlocal read
        read += 1
        if flaw is not None:
            raise flaw
        return ClientSecurity()

    async def ask() -> None:
        nonlocal flaw
        source = open_source("127.0.0.1:1", secrets, Links(), clock=SystemClock(), chance=SystemChance())
        assert read == 1
        with pytest.raises(Unreachable):
            await source.discover(Names(["t"]))
        assert read > 1
        for flaw in (ConfigError("the file is gone"), NotAllowed("the file is not listed")):
            with pytest.raises(SourceRefuses, match=str(flaw)):
                await source.discover(Names(["t"]))
        await source.close()
        for flaw in (ConfigError("the file is gone"), NotAllowed("the file is not listed")):
            with pytest.raises(type(flaw)):
                open_source("127.0.0.1:1", secrets, Links(), clock=SystemClock(), chance=SystemChance())

    asyncio.run(ask())


def test_a_quota_of_the_source_is_waited_for(cluster: ModelCluster) -> None:
    """It is no failure, unless it lasts longer than a request may."""
    cluster.throttle_s = [0.001, 0.001]
    source = cluster.source()
    assert len(found(source, want(cluster)).pieces) == 3 and source.throttled_s == 0.002
    cluster.throttle_s = [31.0]
    with pytest.raises(Retriable, match="quota"):
        one(source, want(cluster, position=1))


def compacted(cluster: ModelCluster, policy: str = "compact", **more: str) -> None:
    configs = {"cleanup.policy": policy, **more}
    cluster.configs = [Config(name, value, ConfigSource.DEFAULT, False, None) for name, value in configs.items()]


def looked(source: Source, wanted: Want, fetches: int) -> list[Found]:
    return [found(source, wanted) for _ in range(fetches)]


def test_newest_records_that_compaction_removed_are_a_gap(cluster: ModelCluster) -> None:
    """Old brokers answer with nothing, before their end. The copy ends where the source ends."""
    compacted(cluster, "compact,delete")
    partition = cluster.topics["t"].partitions[0]
    partition.epoch = partition.log.epoch = 2
    partition.log.skip(4)
    source, wanted = cluster.source(), want(cluster, position=3)
    *before, last = looked(source, wanted, 16)
    assert not any(answer.pieces for answer in before)
    assert [(p.start, p.next, p.batch, p.epoch) for p in last.pieces] == [(3, 7, None, -1)]
    assert last.end == last.high_watermark == 7
    assert found(source, after(wanted, last)).pieces == []
    assert [len(fetch) for fetch in cluster.fetches].count(1) == 3 + 2, "three of them for it alone"


def test_an_open_transaction_ends_a_gap(cluster: ModelCluster) -> None:
    compacted(cluster)
    log = cluster.topics["t"].partitions[0].log
    log.skip(2)
    log.append([(0, Rec(b"open"))], 1, producer=7, transactional=True)
    answer = looked(cluster.source(), want(cluster, position=3), 16)[-1]
    assert [(p.start, p.next, p.batch) for p in answer.pieces] == [(3, 5, None)] and answer.high_watermark == 6


def test_an_empty_answer_of_another_topic_proves_nothing(cluster: ModelCluster) -> None:
    """A remote store may be slow. Records that are hidden for long are never left out."""
    cluster.hidden = True
    for policy, more in (("delete", {}), ("compact", {"remote.storage.enable": "true"})):
        compacted(cluster, policy, **more)
        source = cluster.source()
        assert not any(answer.pieces for answer in looked(source, want(cluster), 70))
    compacted(cluster)
    cluster.refused["t"] = ErrorCode.topic_authorization_failed
    source = cluster.source()
    assert not any(answer.pieces for answer in looked(source, want(cluster), 70))
    cluster.hidden = False
    assert len(found(source, want(cluster)).pieces) == 3


def test_a_partition_that_others_leave_no_room_for_is_asked_alone(cluster: ModelCluster) -> None:
    """It is no gap, however often an answer was full before it came to the partition."""
    compacted(cluster)
    source = cluster.source(Links(fetch_total_bytes=1, fetch_bytes=1))
    wants = [want(cluster, "t", 0), want(cluster, "t", 3)]
    seen = [asyncio.run(read(source, *wants))["t", 3] for _ in range(4)]
    assert [len(answer.pieces) for answer in seen if isinstance(answer, Found)] == [0, 0, 0, 1]


def test_a_quota_holds_up_the_question_for_one_partition_alone(cluster: ModelCluster) -> None:
    """It is no failure: the answer of before counts, and the question is asked again later."""
    compacted(cluster)
    cluster.topics["t"].partitions[0].log.skip(1)
    source, wanted = cluster.source(), want(cluster, position=3)
    looked(source, wanted, 3)
    cluster.throttle_s = [0.0, 9.0]
    assert not found(source, wanted).pieces and not cluster.throttle_s


def test_a_partition_that_is_left_begins_anew(cluster: ModelCluster) -> None:
    compacted(cluster)
    cluster.topics["t"].partitions[0].log.skip(1)
    source, wanted = cluster.source(), want(cluster, position=3)
    looked(source, wanted, 15)
    source.leave(wanted.place)
    assert not found(source, wanted).pieces


def test_a_partition_that_is_left_while_it_is_asked_alone(cluster: ModelCluster) -> None:
    """The answer is for nobody, and no gap."""
    compacted(cluster)
    cluster.topics["t"].partitions[0].log.skip(1)
    source, wanted = cluster.source(), want(cluster, position=3)
    looked(source, wanted, 15)

    async def leaving() -> Answer:
        groups, _ = await source.by_leader([wanted])
        asking = asyncio.ensure_future(source.fetch(groups[0]))
        while len(cluster.fetches) < 18:  # fifteen for all, two alone, and that of now
            await asyncio.sleep(0)
        source.leave(wanted.place)
        return (await asking)[wanted.place]

    answer = asyncio.run(leaving())
    assert isinstance(answer, Found) and not answer.pieces


def test_few_partitions_are_asked_alone_at_a_time(cluster: ModelCluster) -> None:
    """Each may bring megabytes. The others have their turn after the next fetches."""
    many = cluster.create("many", 30)
    for partition in many.partitions:
        fill(partition.log, 1)
        partition.leader = 0
    source = cluster.source(Links(fetch_total_bytes=1, fetch_bytes=1))
    positions = dict.fromkeys(range(30), 0)

    def step() -> int:
        before = cluster.sessions.count(ALONE)
        answers = asyncio.run(read(source, *(want(cluster, "many", p, at) for p, at in positions.items() if at == 0)))
        for (_, p), answer in answers.items():
            assert isinstance(answer, Found)
            positions[p] += len(answer.pieces)
        return cluster.sessions.count(ALONE) - before

    assert [step() for _ in range(9)] == [0, 0, 0, 4, 4, 4, 4, 4, 1]
    assert set(positions.values()) == {1}


def test_a_question_alone_that_fails_keeps_what_came_before_it(
    cluster: ModelCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted(cluster)
    cluster.topics["t"].partitions[0].log.skip(1)
    source = cluster.source()
    wants = [want(cluster, "t", 0, 3), want(cluster, "t", 3)]
    for _ in range(3):
        asyncio.run(read(source, wants[0]))

    async def lost(*_: object) -> None:
        raise AnswerLost("the connection was lost")

    monkeypatch.setattr(module, "fetch_batches", lost)
    answers = asyncio.run(read(source, *wants))
    alone, other = answers["t", 0], answers["t", 3]
    assert isinstance(alone, Found) and not alone.pieces
    assert isinstance(other, Found) and len(other.pieces) == 3


def test_a_fetch_brings_no_more_than_its_group_says(cluster: ModelCluster) -> None:
    source = cluster.source()

    async def little() -> list[int]:
        groups, _ = await source.by_leader([want(cluster, "t", p) for p in (0, 3)])
        answers = await source.fetch(replace(groups[0], max_bytes=1))
        return [len(answer.pieces) for answer in answers.values() if isinstance(answer, Found)]

    assert asyncio.run(little()) == [1, 0]
