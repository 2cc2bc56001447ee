"""Settings of SQL over topics, which a gateway answers in processes of its own. `headwater.settings.settings` reads
them."""

from __future__ import annotations

import os

import msgspec

from headwater.errors import ConfigError

MIB = 1 << 20
_NUMBERS = (
    "workers",
    "memory_bytes",
    "hot_bytes",
    "spill_bytes",
    "seconds",
    "rows",
    "result_bytes",
    "queries_per_user",
    "spark_memory_bytes",
    "spark_idle_seconds",
)
_NOT_NEGATIVE = ("warm", "workers_per_user", "threads", "waiting", "niceness", "spark_bytes")


class Sql(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SQL over topics. A gateway answers it in child processes, so that no query takes memory or time of its own."""

    enabled: bool = True
    """Whether a gateway answers SQL."""
    workers: int = 3
    """DuckDB's processes of a gateway at most. Each answers one query at a time."""
    workers_per_user: int = 0
    """How many of an engine's processes work for one user, or for one address without a log-in, at once. Further
    queries of that user wait. 0: all but one, so that queries of other users find a process, and at least one."""
    warm: int = 1
    """Processes that are started before the first query. A query that finds none waits about a second for its start."""
    waiting: int = 32
    """Queries that wait for a free process. Further ones get 503."""
    queries_per_user: int = 8
    """Queries of one user that run or wait at once. Further ones get 503."""
    threads: int = 0
    """Threads of one process. 0: one for every core but one, which is left to brokers."""
    niceness: int = 10
    """Niceness of the processes, within their session and as a session beside others; they also leave one of several
    cores to others while these need it. 0: as brokers. At most 19."""
    memory_bytes: int = 1024 * MIB
    """Memory of one query in DuckDB. What needs more is spilled to disk."""
    hot_bytes: int = 256 * MIB
    """Memory of one process for rows that are not settled yet, decoded. They are kept for the next query. A query with
    more of them puts them into DuckDB's memory."""
    spill: str = ""
    """Directory for what does not fit into memory. Empty: `spill` in `data`."""
    spill_bytes: int = 10_240 * MIB
    """Bytes that one query may spill. A query that needs more fails."""
    seconds: int = 600
    """Longest time of a query, from the question to the last row that its caller has read."""
    rows: int = 10_000_000
    """Rows of an answer. A query with more fails: aggregate, use LIMIT, or read the topic's table."""
    result_bytes: int = 4_096 * MIB
    """Bytes of an answer, as Arrow has them in memory. A query with more fails."""
    functions: tuple[str, ...] = ()
    """Functions of DuckDB that statements may call beside those of the list (`docs/guides/sql.md`), in lower case."""
    spark_bytes: int = 0
    """Bytes of files and WAL from which on Spark answers a query that leaves the choice to Headwater. 0: never."""
    spark_memory_bytes: int = 1024 * MIB
    """Memory of Spark's Java. Spark's process is started by the first query that needs it."""
    spark_jars: tuple[str, ...] = ()
    """Files and directories with more classes for Spark's Java. It reads S3 with `hadoop-aws` and what that needs."""
    spark_idle_seconds: int = 300
    """How long Spark's process stays after its last query. The next one waits for its start, several seconds."""

    @property
    def share(self) -> int:
        """How many processes work for one user, also if no number is set."""
        return self.workers_per_user or max(1, self.workers - 1)

    @property
    def chosen_threads(self) -> int:
        """The number of threads, also if none is set."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.threads or max(1, cores - 1)


def check_sql(own: Sql) -> None:
    """Raise `ConfigError` for values that cannot work."""
    for name in _NUMBERS:
        if getattr(own, name) <= 0:
            raise ConfigError(f"settings: sql.{name} must be above 0")
    for name in _NOT_NEGATIVE:
        if getattr(own, name) < 0:
            raise ConfigError(f"settings: sql.{name} must not be negative")
    for name in own.functions:
        if not name.isidentifier() or name != name.lower():
            raise ConfigError(
                f"settings: sql.functions has {name!r}, which is not the name of a function in lower case"
            )
    for path in own.spark_jars:
        if not os.path.isabs(path) or ":" in path:
            raise ConfigError(f"settings: sql.spark_jars has {path!r}, which is no absolute path without a colon")
    if own.warm > own.workers:
        raise ConfigError("settings: sql.warm must not be above sql.workers")
    if own.niceness > 19:
        raise ConfigError("settings: sql.niceness must not be above 19")
    if own.memory_bytes < 64 * MIB:
        raise ConfigError("settings: sql.memory_bytes must be at least 64 MiB")
