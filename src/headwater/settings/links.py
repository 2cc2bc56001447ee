"""Settings of links, which copy topics of another Kafka. `headwater.settings.settings` reads them."""

from __future__ import annotations

from pathlib import PurePath

import msgspec

from headwater.errors import ConfigError

MIB = 1 << 20
_NOT_NEGATIVE = ("retry_jitter_percent", "flush_ms")
LARGEST_FETCH = 100 * MIB
"""The client takes answers of at most 128 MiB, and a first batch may be larger than what was asked for."""


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Links, which copy topics of another Kafka (`headwater link`). The settings hold for every link of a process."""

    connect_ms: int = 10_000
    """How long a connection to a broker of the source may take, log-in included."""
    request_ms: int = 30_000
    """How long a broker of the source may take for an answer. After that the connection is closed."""
    metadata_ms: int = 30_000
    """How often a link looks for new topics, new partitions and new leaders. A leader that moves is noticed at once."""
    groups_ms: int = 60_000
    """How often committed offsets of groups are copied. They are copied once more when a link is promoted."""
    report_ms: int = 10_000
    """How often a process notes in the ledger how far the source is, if that has changed. `link describe` shows it."""
    fetch_wait_ms: int = 500
    """How long the source may wait for records before it answers an empty fetch."""
    fetch_bytes: int = 4 * MIB
    """Bytes of one partition in one fetch. A larger batch comes whole, alone."""
    fetch_total_bytes: int = 32 * MIB
    """Bytes of one fetch, over all partitions of a broker of the source."""
    opened_bytes: int = 256 * MIB
    """Largest batch, uncompressed, of those that a copy begins in the middle of. Others are not opened. A larger one
    stops the link of its topic."""
    ahead_bytes: int = 16 * MIB
    """Bytes of one partition that were fetched and are not appended yet. Above this the partition is not fetched."""
    ahead_total_bytes: int = 256 * MIB
    """The same for all partitions of a process. Above this nothing is fetched until half of it is appended."""
    flush_ms: int = 100
    """How long fetched batches of a partition wait for more of them before they are appended. 0: not at all."""
    flush_bytes: int = 8 * MIB
    """They are appended sooner when they have this many bytes, ..."""
    flush_batches: int = 1_000
    """... or when there are this many of them."""
    retry_first_ms: int = 100
    """The pause after a first failure. Each further failure doubles it."""
    retry_longest_ms: int = 30_000
    """The longest pause between two tries."""
    retry_jitter_percent: int = 10
    """Each pause is longer by a random part of it, up to this much. 0 to 100."""
    retry_tries: int = 10
    """Failures in a row after which what failed counts as unhealthy. It is retried all the same, with the longest
    pause."""
    breaker_failures: int = 5
    """Failures of a source in a row after which its circuit breaker opens: no more requests for a while."""
    breaker_open_ms: int = 30_000
    """How long an open breaker lets no request through. Then single requests try whether the source works."""
    breaker_successes: int = 2
    """Successes in a row of such requests after which the breaker closes. One failure opens it again."""
    check_ms: int = 500
    """How often a process looks which links and which of their shares it copies."""
    lease_ms: int = 10_000
    """How long a process keeps its shares of links without renewing them. If it dies, others take them over after that
    time at the latest."""
    secret_directories: tuple[str, ...] = ()
    """Absolute paths of directories, or of single files. A link may name files in them only: passwords, keys,
    certificates. Files are judged when a link is created and each time they are read, with symbolic links followed.
    Empty: links name no files. `headwater ingest` adds the files of its own link."""
    secret_variables: tuple[str, ...] = ()
    """Names of variables of the environment that a link may name. Empty: none. `headwater ingest` adds those of its own
    link."""
    late_ms: int = 60_000
    """A partition is degraded if its newest copied record is older than this while the source has newer ones, or if the
    same transaction has been open at the source for this long, and holds up what is behind it."""


def check_links(own: Links) -> None:
    """Raise `ConfigError` for values that cannot work."""
    for directory in own.secret_directories:
        if not PurePath(directory).is_absolute() or "\0" in directory:
            raise ConfigError(f"settings: links.secret_directories: {directory!r} is not an absolute path")
    for name in own.__struct_fields__:
        value = getattr(own, name)
        if not isinstance(value, int):
            continue
        if value < 0 or (value == 0 and name not in _NOT_NEGATIVE):
            wanted = "must not be negative" if name in _NOT_NEGATIVE else "must be above 0"
            raise ConfigError(f"settings: links.{name} {wanted}")
    if own.retry_jitter_percent > 100:
        raise ConfigError("settings: links.retry_jitter_percent must not be above 100")
    for smaller, larger in (
        ("retry_first_ms", "retry_longest_ms"),
        ("fetch_bytes", "fetch_total_bytes"),
        ("ahead_bytes", "ahead_total_bytes"),
    ):
        if getattr(own, smaller) > getattr(own, larger):
            raise ConfigError(f"settings: links.{smaller} must not be above links.{larger}")
    if own.fetch_total_bytes > LARGEST_FETCH:
        raise ConfigError(f"settings: links.fetch_total_bytes must not be above {LARGEST_FETCH}")
    if own.fetch_wait_ms >= own.request_ms:
        raise ConfigError("settings: links.fetch_wait_ms must be below links.request_ms")
