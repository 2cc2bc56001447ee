"""Who may see and read the schemas of a subject. The registry and all that use its schemas ask here."""

from __future__ import annotations

from headwater.gateway.services import Call
from headwater.replica.topic_rights import topic_of
from headwater.state.cluster.access import AclResource, Operation


def may(call: Call, subject: str, operation: Operation) -> bool:
    """Whether the caller is allowed an operation on the topic of a subject, or on the cluster if it has no topic."""
    topic = topic_of(subject)
    if topic:
        return call.may(operation, AclResource.TOPIC, topic)
    return call.may(operation, AclResource.CLUSTER)


def may_see(call: Call, subject: str) -> bool:
    """Whether the caller may know that a subject exists."""
    return may(call, subject, Operation.DESCRIBE)


def may_read(call: Call, subject: str) -> bool:
    """Whether the caller may read the schemas of a subject."""
    if topic_of(subject):
        return may(call, subject, Operation.READ) or may(call, subject, Operation.WRITE)
    return may(call, subject, Operation.DESCRIBE)


def may_change(call: Call, subject: str) -> bool:
    """Whether the caller may register schemas under a subject, and delete them."""
    return may(call, subject, Operation.WRITE if topic_of(subject) else Operation.ALTER)
