"""The messages of Oxia that the ledger uses, and their translation to the types of `ledger/oxia/store.py`."""

from __future__ import annotations

from typing import Any

from headwater.errors import Damaged
from headwater.ledger.oxia.store import Item, Write, Written
from headwater.ledger.protobuf import messages

SERVICE = "io.streamnative.oxia.proto.OxiaClient"

MESSAGES = messages(
    "headwater.oxia",
    {
        "ShardAssignmentsRequest": ("string namespace = 1",),
        "ShardAssignments": ("repeated NamespaceEntry namespaces = 1",),
        "NamespaceEntry": ("string key = 1", "NamespaceShards value = 2"),
        "NamespaceShards": ("repeated ShardAssignment assignments = 1",),
        "ShardAssignment": ("int64 shard = 1", "string leader = 2", "HashRange int32_hash_range = 3"),
        "HashRange": ("fixed32 min_hash_inclusive = 1", "fixed32 max_hash_inclusive = 2"),
        "WriteRequest": (
            "optional int64 shard = 1",
            "repeated PutRequest puts = 2",
            "repeated DeleteRequest deletes = 3",
            "repeated DeleteRangeRequest delete_ranges = 4",
        ),
        "PutRequest": (
            "string key = 1",
            "bytes value = 2",
            "optional int64 expected_version_id = 3",
            "optional string partition_key = 6",
            "repeated uint64 sequence_key_delta = 7",
        ),
        "DeleteRequest": ("string key = 1",),
        "DeleteRangeRequest": ("string start_inclusive = 1", "string end_exclusive = 2"),
        "WriteResponse": (
            "repeated PutResponse puts = 1",
            "repeated StatusResponse deletes = 2",
            "repeated StatusResponse delete_ranges = 3",
        ),
        "PutResponse": ("int32 status = 1", "Version version = 2", "optional string key = 3"),
        "StatusResponse": ("int32 status = 1",),
        "Version": ("int64 version_id = 1", "int64 modifications_count = 2"),
        "ReadRequest": ("optional int64 shard = 1", "repeated GetRequest gets = 2"),
        "GetRequest": ("string key = 1", "bool include_value = 2", "int32 comparison_type = 3"),
        "ReadResponse": ("repeated GetResponse records = 1",),
        "GetResponse": (
            "int32 status = 1",
            "Version version = 2",
            "optional bytes value = 3",
            "optional string key = 4",
        ),
        "RangeScanRequest": (
            "optional int64 shard = 1",
            "string start_inclusive = 2",
            "string end_exclusive = 3",
        ),
        "RangeScanResponse": ("repeated GetResponse records = 1",),
        "GetSequenceUpdatesRequest": ("int64 shard = 1", "string key = 2"),
        "GetSequenceUpdatesResponse": ("string highest_sequence_key = 1",),
    },
)

_OK, _KEY_NOT_FOUND, _UNEXPECTED_VERSION = 0, 1, 2


def write_message(route: str, write: Write) -> Any:
    """A write request without its shard. A put carries its route, so that Oxia can split the shard."""
    message = MESSAGES.WriteRequest()
    for put in write.puts:
        added = message.puts.add(key=put.key, value=put.value, partition_key=route)
        if put.sequence:
            added.sequence_key_delta.append(1)
        if put.expected_version is not None:
            added.expected_version_id = put.expected_version
    for key in write.deletes:
        message.deletes.add(key=key)
    for start, end in write.delete_ranges:
        message.delete_ranges.add(start_inclusive=start, end_exclusive=end)
    return message


def written_of(write: Write, response: Any, leader: str) -> Written:
    """The result of a write from a server's answer."""
    keys: list[str | None] = []
    for put, answer in zip(write.puts, response.puts, strict=True):
        if answer.status not in (_OK, _UNEXPECTED_VERSION):
            raise Damaged(f"Oxia answers a put of {put.key!r} with status {answer.status}")
        keys.append((answer.key or put.key) if answer.status == _OK else None)
    return Written(keys, leader)


def item_of(found: Any, key: str) -> Item | None:
    """The item from an answer to a read. `None` if the key does not exist."""
    if found.status == _KEY_NOT_FOUND:
        return None
    if found.status != _OK:
        raise Damaged(f"Oxia answers a read of {key!r} with status {found.status}")
    return Item(found.key or key, found.value, found.version.version_id, found.version.modifications_count)
