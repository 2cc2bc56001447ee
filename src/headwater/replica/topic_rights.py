"""The rights that configs of a topic need, beside that of changing them: what a config makes the server do later.

The compactor copies values to the dead-letter topic and reads the schemas of subjects, for no caller in particular. So
the caller who sets such a config must have the rights of doing it. A config that stays as it is is not asked about
again. Who has set a dead-letter topic is stored with it, and the compactor asks again when it writes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from headwater.configs.changes import Change
from headwater.configs.topics import DLQ_SETTER, DLQ_TOPIC, KEY_SCHEMA, SUBJECT_PREFIX, VALUE_SCHEMA
from headwater.errors import NotReady
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation

OF_TOPICS = ("-key", "-value")
"""How names of subjects end that belong to a topic."""


@dataclass(frozen=True, slots=True)
class Need:
    """A right that a config needs. Any one of the operations is enough."""

    config: str
    operations: tuple[Operation, ...]
    kind: AclResource
    name: str

    def __str__(self) -> str:
        wanted = " or ".join(operation.name for operation in self.operations)
        on = "the cluster" if self.kind is AclResource.CLUSTER else f"topic {self.name!r}"
        return f"{self.config} needs the right to {wanted} {on}"


def topic_of(subject: str) -> str:
    """The topic to which a subject belongs; empty if it belongs to none."""
    for ending in OF_TOPICS:
        if subject.endswith(ending):
            return subject.removesuffix(ending)
    return ""


def needs_of(name: str, configs: Mapping[str, str], before: Mapping[str, str]) -> Iterator[Need]:
    """The rights that a topic's new configs need. `before` are those that it has, none for a new topic."""
    schemas = [config for config in (KEY_SCHEMA, VALUE_SCHEMA) if configs.get(config) != before.get(config)]
    for config in schemas:
        subject = configs.get(config, "")
        if subject.startswith(SUBJECT_PREFIX):
            yield _reading(config, subject.removeprefix(SUBJECT_PREFIX))
    target = configs.get(DLQ_TOPIC, "")
    if target and (schemas or target != before.get(DLQ_TOPIC, "")):
        # Also another schema decides which values are copied: all of them, if it fits none.
        yield Need(DLQ_TOPIC, (Operation.READ,), AclResource.TOPIC, name)
        yield Need(DLQ_TOPIC, (Operation.WRITE,), AclResource.TOPIC, target)


def with_setter(change: Change, before: Mapping[str, str], principal: str, host: str) -> Change:
    """A change of configs, with who makes it if that has to be known later. `before` is empty for a new topic."""
    after = change.after({name: value for name, value in before.items() if name != DLQ_SETTER})
    put, remove = dict(change.put), [name for name in change.remove if name != DLQ_SETTER]
    if any(need.config == DLQ_TOPIC for need in needs_of("", after, before)):
        put[DLQ_SETTER] = f"{host} {principal}"
    elif DLQ_SETTER in before and not after.get(DLQ_TOPIC):
        remove.append(DLQ_SETTER)
    return Change(put, remove)


def shown(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs of a topic that are shown."""
    return {name: value for name, value in configs.items() if name != DLQ_SETTER}


def check_setter(
    may: Callable[[str, str, Operation, AclResource, str], bool], name: str, configs: Mapping[str, str]
) -> None:
    """Raise `NotReady` if who has set the dead-letter topic of a topic may not do what it does any more.

    Who has set that of an earlier build is not known.
    """
    host, _, principal = configs.get(DLQ_SETTER, "").partition(" ")
    if not principal:
        return
    for need in needs_of(name, {DLQ_TOPIC: configs.get(DLQ_TOPIC, "")}, {}):
        if not any(may(principal, host, operation, need.kind, need.name) for operation in need.operations):
            raise NotReady(
                f"{principal} has set the dead-letter topic, and has lost a right: {need}. Give it back, or have "
                f"{DLQ_TOPIC} set again by someone who has it"
            )


def _reading(config: str, subject: str) -> Need:
    """The right to read the schemas of a subject, as the schema registry asks for it."""
    topic = topic_of(subject)
    if topic:
        return Need(config, (Operation.READ, Operation.WRITE), AclResource.TOPIC, topic)
    return Need(config, (Operation.DESCRIBE,), AclResource.CLUSTER, THE_CLUSTER)
