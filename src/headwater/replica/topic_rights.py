"""The rights that configs of a topic need, beside that of changing them: what a config makes the server do later.

The compactor copies values to the dead-letter topic and reads the schemas of subjects, for no caller in particular. So
the caller who sets such a config must have the rights of doing it. A config that stays as it is is not asked about
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headwater.configs.topics import DLQ_TOPIC, KEY_SCHEMA, SUBJECT_PREFIX, VALUE_SCHEMA
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


def _reading(config: str, subject: str) -> Need:
    """The right to read the schemas of a subject, as the schema registry asks for it."""
    topic = topic_of(subject)
    if topic:
        return Need(config, (Operation.READ, Operation.WRITE), AclResource.TOPIC, topic)
    return Need(config, (Operation.DESCRIBE,), AclResource.CLUSTER, THE_CLUSTER)
