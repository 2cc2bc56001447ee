"""T1, T13: what goes into which task, decided over the state alone."""

import uuid

from headwater.lake.planning import Limits, TopicPlan, due, plan_settle, table_root
from headwater.state.commands.streams import Chunk
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.scribe import FIRST_CHUNK, START_MS, TOPIC, Scribe

LIMITS = Limits(file_bytes=1_000, job_bytes=10_000, min_task_bytes=100)


def scribe(streams: int) -> Scribe:
    made = Scribe(StreamsState(Domain(1)))
    made.streams(*range(1, streams + 1))
    return made


def state_of(made: Scribe) -> StreamsState:
    assert isinstance(made.state, StreamsState)
    return made.state


def interleaved(made: Scribe, objects: int, length: int) -> None:
    """Objects that all streams share."""
    for _ in range(objects):
        chunks = []
        for i, stream in enumerate(state_of(made).streams):
            chunks.append(Chunk(stream, FIRST_CHUNK + i * (length + 4), [(length, 5, 10)], []))
        made.do(1, made.wal(*chunks))


def plan_of(made: Scribe, freshness_ms: int = 30_000) -> TopicPlan:
    return TopicPlan(TOPIC, table_root("t", TOPIC), list(state_of(made).streams.values()), freshness_ms)


def test_each_object_is_in_one_task() -> None:
    """T1: runs are cut along the objects, not stream by stream."""
    made = scribe(4)
    interleaved(made, 10, 96)
    job = plan_settle(state_of(made), [plan_of(made)], store="memory://", prefix="1-1-", slots=2, limits=LIMITS)
    seen: dict[str, set[int]] = {}
    for number, task in enumerate(job.tasks):
        for file in task.files:
            assert file.wal_bytes <= LIMITS.file_bytes
            for part in file.parts:
                for run in part.runs:
                    seen.setdefault(run.path, set()).add(number)
    assert len(seen) == 10
    assert sum(len(tasks) for tasks in seen.values()) <= 10 + len(job.tasks)  # only where a file ends


def test_streams_stay_in_order() -> None:
    """T1: each stream's parts follow one another over the files, from where it is settled to its end."""
    made = scribe(3)
    interleaved(made, 12, 200)
    job = plan_settle(state_of(made), [plan_of(made)], store="memory://", prefix="1-1-", slots=2, limits=LIMITS)
    at: dict[int, int] = {}
    for task in job.tasks:
        for file in task.files:
            assert [part.partition for part in file.parts] == sorted(part.partition for part in file.parts)
            for part in file.parts:
                assert part.start == at.get(part.stream, 0)
                assert part.end == part.start + 5 * len(part.runs)
                at[part.stream] = part.end
    assert at == {1: 60, 2: 60, 3: 60}


def test_a_job_is_bounded() -> None:
    """T1: by bytes, and so that its result fits one ledger record."""
    made = scribe(2)
    interleaved(made, 200, 500)
    small = plan_settle(state_of(made), [plan_of(made)], store="m://", prefix="x", slots=2, limits=LIMITS)
    assert 9_000 <= sum(file.wal_bytes for task in small.tasks for file in task.files) <= 11_000
    few = Limits(file_bytes=1_000, job_bytes=1 << 30, min_task_bytes=100, parts_per_topic=10)
    job = plan_settle(state_of(made), [plan_of(made)], store="m://", prefix="x", slots=2, limits=few)
    assert sum(len(file.parts) for task in job.tasks for file in task.files) <= 10


def test_small_topics_share_a_task() -> None:
    """T13: a thousand trickling topics are a handful of tasks."""
    made = Scribe(StreamsState(Domain(1)))
    made.streams(*range(1, 1_001))
    for stream in range(1, 1_001):
        made.append(1, stream, [(100, 1, 5)])
    streams = state_of(made).streams
    plans = [TopicPlan(uuid.UUID(int=s), f"tables/{s}", [streams[s]], 1_000) for s in range(1, 1_001)]
    job = plan_settle(state_of(made), plans, store="m://", prefix="x", slots=2, limits=Limits())
    assert len(job.tasks) == 1
    assert len(job.tasks[0].files) == 1_000
    assert sorted(topic.int for topics in job.topics for topic in topics) == list(range(1, 1_001))


def test_when_a_turn_comes() -> None:
    """T10: by age against the freshness target, or by bytes."""
    made = scribe(1)
    state, plan = state_of(made), plan_of(made, 30_000)
    assert not due(state, plan, START_MS + 1_000_000, LIMITS)
    made.append(1, 1, [(100, 1, 5)])
    assert not due(state, plan, START_MS + 9_999, LIMITS)
    assert due(state, plan, START_MS + 10_000, LIMITS)
    made.append(1, 1, [(900, 1, 5)])
    assert due(state, plan, START_MS, LIMITS)
