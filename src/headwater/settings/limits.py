"""Settings of limits and quotas. `headwater.settings.settings` reads them."""

from __future__ import annotations

import msgspec

MIB = 1 << 20
MAX_CLUSTER_PARTITIONS = 1_000_000


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the sections here. The string below a field is its meaning in `docs/reference/configuration.md`."""


class Limits(_Section, frozen=True):
    """Limits on everything that a client can make grow."""

    frame_bytes: int = 100 * MIB
    """Largest request in bytes. The broker closes a connection that announces a larger one."""
    opened_batch_bytes: int = 64 * MIB
    """Largest size of a record batch in bytes after decompression. Larger batches are refused. A broker decompresses
    one large batch at a time."""
    connections: int = 10_000
    """Connections a broker serves at once. Further ones are closed at once. Kafka's `max.connections` overrides it."""
    connections_per_address: int = 5_000
    """Connections from one address at once, so that one client cannot take them all. Further ones are closed. Raise it
    if clients come through a proxy. `max.connections.per.ip` overrides it."""
    connections_per_second: int = 2_147_483_647
    """New connections a second. The broker delays its first read from those above the limit by up to
    `quotas.sample_ms`. `max.connection.creation.rate` overrides it."""
    connection_inflight_bytes: int = 32 * MIB
    """Bytes of requests of one connection that are not answered yet. Above this the broker stops reading from it."""
    connection_inflight_requests: int = 256
    """Requests of one connection that are not answered yet. Above this the broker stops reading from it."""
    broker_inflight_bytes: int = 256 * MIB
    """Bytes of requests of all connections that are not answered yet, and of batches that are not decided yet, though
    their requests timed out or their connections were lost. Above this the broker stops reading from every connection
    until it is below half of it."""
    fetch_response_bytes: int = 55 * MIB
    """Bytes of records in one answer to Fetch. The first batch is sent whole even if it is larger."""
    fetch_sessions: int = 1_000
    """Fetch sessions a broker keeps. A new one replaces the least recently used; its client starts another."""
    request_items: int = 50_000
    """Elements of all lists of one request: topics, partitions, configs and the like. The broker closes the connection
    of a request with more, unless the answer has room for an error. It is also the limit on partitions of a fetch
    session. Work on more than 256 elements is done in slices, between other requests."""
    partitions_per_topic: int = 10_000
    """Partitions of one topic. CreateTopics and CreatePartitions refuse more."""
    partitions: int = 100_000
    """Partitions of all topics of the cluster, at most 1000000. A broker creates no more, with POLICY_VIOLATION."""
    broker_response_bytes: int = 512 * MIB
    """Bytes of answers that clients of all connections have not read yet. Above this, a connection's next request is
    read only when it has read its last answer, and answers to Fetch are small. Above twice this none is read."""
    stalled_ms: int = 5_000
    """While answers take more than `broker_response_bytes`, the broker closes connections that read less than 64 KB a
    second of theirs over this time."""
    idle_ms: int = 600_000
    """The broker closes a connection on which nothing was sent or received for this time, as Kafka does with
    `connections.max.idle.ms`. A connection whose request is being worked on is not idle."""
    http_connections: int = 256
    """HTTP connections that are being answered, and as many that have not sent their request yet. When a further one
    comes, the oldest of these is closed. Health pages have places of their own."""
    group_member_bytes: int = 512 * 1024
    """Bytes that one member of a group brings: its ids, subscriptions and assignment. A join with more is refused with
    GROUP_MAX_SIZE_REACHED."""
    group_bytes: int = 32 * MIB
    """Bytes that the members of one group bring. A join beyond that is refused with GROUP_MAX_SIZE_REACHED."""
    caller_groups_bytes: int = 128 * MIB
    """Bytes of the groups that one user, or one address without a log-in, has made at a broker. Refused as above."""
    groups_bytes: int = 512 * MIB
    """Bytes of all groups that a broker coordinates. Refused as above."""
    caller_keys_bytes: int = 128 * MIB
    """Bytes that the state keeps for a day under idempotency keys of one user, or one address without a log-in: a few
    hundred for each key, and about 30 for each partition of its request. Further requests with a key get 503."""
    keys_bytes: int = 512 * MIB
    """Bytes that the state keeps under all idempotency keys. Further requests with a key get 503."""
    reserved_descriptors: int = 128
    """File descriptors of a process that connections do not get, at least a tenth of all and at most half. A process
    raises its soft limit to the hard limit at its start. Connections of all its listeners share the others, and those
    of one address half of them. A further one takes the place of the oldest that has not logged in, or, where no log-in
    is needed, has sent no request. If there is none, it is closed."""


class Quotas(_Section, frozen=True):
    """How the rates of clients are measured, and how many of their own metrics clients may push."""

    samples: int = 11
    """A rate is measured over this many samples, the current one included."""
    sample_ms: int = 1_000
    """Length of a sample. It is also the longest throttle time for request time and new connections."""
    entities: int = 10_000
    """Users, clients and addresses whose rates a broker keeps. A new one replaces the one unused for longest."""
    telemetry_bytes: int = MIB
    """Largest push of a client's own metrics in bytes. Larger ones are refused."""
    telemetry_clients: int = 10_000
    """Clients whose metrics subscriptions a broker keeps. A new one replaces the one unused for longest."""
