"""How the files of topics are made easy to pass over, by the configs of the topics: indexed columns, cut files."""

from __future__ import annotations

import uuid

import msgspec

from headwater.configs.keys import elements
from headwater.configs.topics import CUT_PARTITIONS, INDEX_COLUMNS, value_of
from headwater.lake.planning import Job
from headwater.state.cluster.state import ClusterState


def indexed(job: Job, cluster: ClusterState) -> Job:
    """A job whose file tasks name the columns to index."""
    paths = {topic: found for topics in job.topics for topic in topics if (found := _paths(cluster, topic))}
    if paths:
        for at, (task, topics) in enumerate(zip(job.tasks, job.topics, strict=True)):
            files = [
                msgspec.structs.replace(file, index=paths.get(topic, ()))
                for file, topic in zip(task.files, topics, strict=True)
            ]
            job.tasks[at] = msgspec.structs.replace(task, files=files)
    return job


def _paths(cluster: ClusterState, topic: uuid.UUID) -> tuple[str, ...]:
    known = cluster.topics.get(topic)
    if known is None or INDEX_COLUMNS not in known.configs:
        return ()
    return tuple(elements(value_of(INDEX_COLUMNS, known.configs, cluster.resources.common)))


def cut_topics(cluster: ClusterState) -> set[uuid.UUID]:
    """The topics whose common files are cut by partition."""
    return {
        topic.id
        for topic in cluster.topics.values()
        if CUT_PARTITIONS in topic.configs
        and value_of(CUT_PARTITIONS, topic.configs, cluster.resources.common) == "true"
    }
