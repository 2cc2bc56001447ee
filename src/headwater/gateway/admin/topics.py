"""Changing topics and their configs for a caller of the HTTP API, by the rules of Kafka's own APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.configs import topics as topic_configs
from headwater.configs.changes import DELETE, SET, Edit, change_of, rules_of_topics
from headwater.configs.topics import TopicConfig
from headwater.errors import BadInput, ConfigError, InvalidPartitions, NotReady
from headwater.gateway.problems import NOT_ALLOWED, Refusal
from headwater.gateway.services import Call, missing
from headwater.replica import topic_rules
from headwater.replica.links import check_own_partitions
from headwater.replica.topic_rights import needs_of, shown, with_setter
from headwater.replica.topics import check_name
from headwater.replica.trimming import start_of
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import TrimStreams
from headwater.state.results import Done
from headwater.state.streams.stream import Stream
from headwater.types import Domain


async def find(call: Call, name: str, operation: Operation, *, by_cluster: bool = False) -> Topic:
    """A topic on which the caller is allowed an operation. With `by_cluster`, a right on the cluster is enough.

    As in Kafka, a caller who may change a topic need not have the right to DESCRIBE it.
    """
    if not _may(call, operation, name, by_cluster):
        call.check(operation, AclResource.TOPIC, name)
    call.services.check_contact()
    await call.services.catch_up()
    topic = await call.services.find_topic(name)
    if topic is None:
        raise missing("topic", name)
    return topic


def _may(call: Call, operation: Operation, name: str, by_cluster: bool) -> bool:
    if by_cluster and call.may(operation, AclResource.CLUSTER):
        return True
    return call.may(operation, AclResource.TOPIC, name)


async def create(call: Call, name: str, partitions: int | None, configs: Mapping[str, str], *, dry: bool) -> int:
    """Create a topic, or with `dry` only check that it could be created. Returns the number of partitions."""
    own = call.services
    check_name(name)
    if not _may(call, Operation.CREATE, name, by_cluster=True):
        raise Refusal(NOT_ALLOWED, f"{call.caller.principal} may not CREATE the topic {name!r}")
    own.check_contact()
    await own.catch_up()
    topic_rules.check_free(own.state, name)
    rules = rules_of_topics(own.state.resources.common)
    change = change_of(rules, {}, [Edit(config, SET, value) for config, value in configs.items()])
    _check_rights(call, name, change.put, {})
    topic_rules.check_choices(own.state, name, change.put, {})
    count = own.settings.default_partitions if partitions is None else partitions
    if count < 1:
        raise InvalidPartitions("A topic has at least one partition.")
    topic_rules.within_limit(own.settings.limits, count)
    topic_rules.check_room(own.state, own.settings.limits, count)
    if not dry:
        own.quotas.mutate(call.caller.principal, count)
        stored = with_setter(change, {}, call.caller.principal, call.caller.host)
        await own.topics.create(name, count, stored.put)
    return count


def _check_rights(call: Call, name: str, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raise unless the caller has the rights of what new configs make the server do."""
    for need in needs_of(name, configs, before):
        if not any(call.may(operation, need.kind, need.name) for operation in need.operations):
            raise Refusal(NOT_ALLOWED, f"{call.caller.principal} may not set this: {need}")


async def grow(call: Call, name: str, partitions: int, *, dry: bool) -> Topic:
    """Add partitions to a topic, so that it has the given number."""
    own = call.services
    topic = await find(call, name, Operation.ALTER)
    check_own_partitions(own.state, topic)
    topic_rules.check_growth(own.settings.limits, topic, partitions)
    topic_rules.check_room(own.state, own.settings.limits, partitions - len(topic.streams))
    if not dry:
        own.quotas.mutate(call.caller.principal, partitions - len(topic.streams))
        await own.topics.add_partitions(topic, partitions)
    return topic


async def delete(call: Call, name: str) -> None:
    """Delete a topic with its records."""
    topic = await find(call, name, Operation.DELETE, by_cluster=True)
    call.services.quotas.mutate(call.caller.principal, len(topic.streams))
    await call.services.topics.delete(topic)


async def alter(call: Call, name: str, put: Mapping[str, str], reset: Sequence[str], *, dry: bool) -> Mapping[str, str]:
    """Set and reset configs of a topic, all or none. Returns what is set for the topic from then on."""
    own = call.services
    topic = await find(call, name, Operation.ALTER_CONFIGS)
    unknown = [config for config in reset if config not in topic_configs.KEYS]
    if unknown:
        raise ConfigError(f"Unknown topic config name: {unknown[0]}")
    both = sorted(put.keys() & set(reset))
    if both:
        raise BadInput(f"the request both sets and resets {both[0]}")
    edits = [*(Edit(config, SET, value) for config, value in put.items()), *(Edit(c, DELETE, "") for c in reset)]
    change = change_of(rules_of_topics(own.state.resources.common), topic.configs, edits)
    after = change.after(topic.configs)
    _check_rights(call, name, after, topic.configs)
    topic_rules.check_choices(own.state, name, after, topic.configs)
    if not dry and after != topic.configs:
        stored = with_setter(change, topic.configs, call.caller.principal, call.caller.host)
        await own.topics.alter(topic, stored.put, stored.remove)
    return shown(after)


async def trim(call: Call, name: str, before: Mapping[int, int | None]) -> list[Stream]:
    """Delete the records before an offset (`None`: all) of some partitions. Nothing is deleted if one is refused."""
    own = call.services
    topic = await find(call, name, Operation.DELETE)
    replica = own.domains[Domain(topic.domain)]
    await own.catch_up(replica.domain)
    config = TopicConfig.of(topic.configs, own.state.resources.common)
    starts, found = [], []
    for partition, offset in before.items():
        if not 0 <= partition < topic.ready:
            raise BadInput(f"the topic {name!r} has no partition {partition}")
        stream = replica.state.streams[topic.streams[partition]]
        starts.append((int(stream.id), start_of(config, stream, offset)))
        found.append(stream)
    [result] = await replica.submit([TrimStreams(starts)])
    if not isinstance(result, Done):
        raise NotReady(f"not carried out: {result}")
    return found
