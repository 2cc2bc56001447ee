"""The columns that a job's files are indexed by come from the configs of their topics."""

import uuid

from headwater.lake.indexing import cut_topics, indexed
from headwater.lake.planning import Job
from headwater.lake.tasks import VERSION, FileTask, Task
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState
from tests.support.promise import promise

PROMISES = ("T17",)

A, B, GONE = (uuid.UUID(int=number) for number in (1, 2, 3))


def file(topic: uuid.UUID) -> FileTask:
    return FileTask(topic.bytes, "root", "x", [], [])


@promise("T17")
def test_columns_by_topic() -> None:
    """Each file has its own topic's."""
    state = ClusterState()
    configs = {A: {"headwater.table.index.columns": "value_data.a,key_data"}, B: dict[str, str]()}
    for topic, own in configs.items():
        state.topics[topic] = _topic(topic, own)
    job = Job([Task(VERSION, "m://", [file(A), file(B)]), Task(VERSION, "m://", [file(GONE)])], [[A, B], [GONE]])
    found = indexed(job, state)
    assert [[one.index for one in task.files] for task in found.tasks] == [[("value_data.a", "key_data"), ()], [()]]
    assert indexed(Job(), state).tasks == []


@promise("T17")
def test_topics_that_want_their_files_cut() -> None:
    """None does by default."""
    state = ClusterState()
    for topic, value in ((A, "true"), (B, "false")):
        state.topics[topic] = _topic(topic, {"headwater.table.cut.partitions": value})
    state.topics[GONE] = _topic(GONE, {})
    assert cut_topics(state) == {A}


def _topic(topic: uuid.UUID, configs: dict[str, str]) -> Topic:
    return Topic(topic, str(topic), 1, configs, [], 0, False, 0)
