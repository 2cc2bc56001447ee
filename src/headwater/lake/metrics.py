"""The metrics of a compactor. They make a stalled compactor visible."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.configs.topics import TopicConfig
from headwater.lake.compactor import Compactor
from headwater.lake.described import typed_of
from headwater.lake.following import Following
from headwater.lake.planning import lag_ms, pending_bytes
from headwater.ops.metrics import Metric
from headwater.replica.replica import Replica
from headwater.state.cluster.state import ClusterState
from headwater.state.streams.state import StreamsState
from headwater.types import Domain

Sample = tuple[Mapping[str, str], float]


def collect(
    cluster: Replica[ClusterState],
    domains: Mapping[Domain, Replica[StreamsState]],
    compactor: Compactor,
    following: Following,
    wall_ms: int,
) -> list[Metric]:
    """All metrics of a compactor."""
    lag: list[Sample] = []
    backlog: list[Sample] = []
    behind: list[Sample] = []
    last: list[Sample] = []
    files: list[Sample] = []
    undecoded: list[Sample] = []
    failed: list[Sample] = []
    for replica in domains.values():
        now_ms = replica.state.now_ms(wall_ms)
        for plan in compactor.plans(replica):
            topic = {"topic": cluster.state.topics[plan.topic].name}
            lag.append((topic, lag_ms(replica.state, plan.streams, now_ms) / 1000))
            backlog.append((topic, sum(pending_bytes(s) for s in plan.streams)))
            table = replica.state.tables.get(plan.topic)
            if table is None:
                continue
            files.append((topic, sum(1 for _ in table.live())))
            known = cluster.state.topics[plan.topic]
            typed = typed_of(replica.state, table, TopicConfig.of(known.configs, cluster.state.resources.common))
            if typed is not None:
                undecoded.append((topic, typed.files_not_decoded))
                failed.append((topic, typed.rows_not_decodable))
            last.append((topic, table.journal[-1].ms / 1000 if table.journal else 0.0))
            for name, follower in table.followers.items():
                behind.append(({**topic, "follower": name}, table.last_sequence - follower.cursor))
    names = {topic.id: topic.name for topic in cluster.state.topics.values()}
    held: list[Sample] = []
    for (name, topic_id), trouble in following.alerts.items():
        reason = "foreign" if trouble.foreign else "error"
        held.append(({"follower": name, "topic": names.get(topic_id, str(topic_id)), "reason": reason}, 1.0))

    late: list[Sample] = [
        ({"topic": names.get(topic_id, str(topic_id))}, ms / 1000)
        for topics in compactor.late.values()
        for topic_id, ms in topics.items()
    ]

    failing: list[Sample] = [
        ({"topic": names.get(topic_id, str(topic_id))}, 1.0) for topic_id in compactor.isolated.alerts
    ]

    def one(value: float) -> list[Sample]:
        return [({}, value)]

    return [
        Metric("headwater_settle_lag_seconds", "gauge", "Age of the oldest record that is not settled.", lag),
        Metric("headwater_settle_late_seconds", "gauge", "Lag of topics that exceed their freshness target.", late),
        Metric("headwater_settle_backlog_bytes", "gauge", "WAL bytes that are not settled.", backlog),
        Metric("headwater_settle_last_seconds", "gauge", "Time of the last settle, since the Unix epoch.", last),
        Metric("headwater_table_files", "gauge", "Segments of a table.", files),
        Metric("headwater_table_files_not_decoded", "gauge", "Segments that are not decoded yet.", undecoded),
        Metric("headwater_table_rows_not_decodable", "gauge", "Rows of a table with a decode_error.", failed),
        Metric("headwater_schema_registry_unreachable", "gauge", "Whether schemas cannot be asked for.",
               one(bool(compactor.decoding.unreachable))),
        Metric("headwater_rewritten_files_total", "counter", "Segments that were decoded later.",
               one(compactor.rewritten_files)),
        Metric("headwater_undecodable_rows_total", "counter", "Rows that could not be decoded when they settled.",
               one(compactor.undecodable_rows)),
        Metric("headwater_follower_lag", "gauge", "Journal entries that a follower has not committed.", behind),
        Metric("headwater_followers_held", "gauge", "Tables that a follower cannot commit to.", held),
        Metric("headwater_follower_commits_total", "counter", "Versions committed.",
               [({"follower": name}, count) for name, count in following.commits.items()]),
        Metric("headwater_settled_files_total", "counter", "Segments settled.", one(compactor.settled_files)),
        Metric("headwater_settled_rows_total", "counter", "Rows settled.", one(compactor.settled_rows)),
        Metric("headwater_merged_files_total", "counter", "Segments merged away.", one(compactor.merged_files)),
        Metric("headwater_retired_files_total", "counter", "Segments that tables no longer keep.",
               one(compactor.retired_files)),
        Metric("headwater_settle_failed_jobs_total", "counter", "Spark jobs that failed.", one(compactor.failed_jobs)),
        Metric("headwater_settle_failing_topics", "gauge", "Topics whose jobs fail. Jobs of others go on.", failing),
        Metric("headwater_gc_files_total", "counter", "Segments deleted.", one(compactor.deleted_files)),
        Metric("headwater_gc_file_orphans_total", "counter", "Orphans deleted.", one(compactor.deleted_orphans)),
    ]  # fmt: skip
