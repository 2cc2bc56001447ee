"""Look-ups: one record by its offset, and the newest record with a key."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import PathParameter, QueryParameter

from headwater.errors import BadInput
from headwater.gateway.parameters import TopicName
from headwater.gateway.records.asking import Shown
from headwater.gateway.records.finding import FoundRecord, found_record, held, place_of
from headwater.gateway.records.values import Format, from_base64
from headwater.gateway.services import TheCall
from headwater.state.cluster.access import Operation

Partition = Annotated[int, PathParameter(description="The number of the partition.")]
Offset = Annotated[int, PathParameter(description="The offset of the record.")]
KeyText = Annotated[str | None, QueryParameter(description="The key, as text.")]
KeyBase64 = Annotated[str | None, QueryParameter(description="The key, in base64.")]
OnePartition = Annotated[int | None, QueryParameter(ge=0, description="Look in this partition only.")]


@get(
    "/v1/topics/{name:str}/partitions/{partition:int}/records/{offset:int}", operation_id="findRecord", tags=["records"]
)
async def find_record(
    call: TheCall, name: TopicName, partition: Partition, offset: Offset, shown: Shown = "text"
) -> FoundRecord:
    """The record at an offset. The caller needs the right to READ the topic.

    An offset that the partition does not have is answered by 416, with the first one and the end. 404 says that the
    offset has no record: a transaction ended or was aborted there, is not committed yet, or left a gap. Records that
    the log has no more are found in the topic's table.
    """
    topic = await call.topic(name, Operation.READ)
    own = call.services
    call.usage.reads()
    async with held(own):
        found = await own.lookups.at(place_of(own, topic), partition, offset)
    return await found_record(own, topic, found, Format(shown), f"partition {partition}, offset {offset}")


@get("/v1/topics/{name:str}/latest", operation_id="findLatest", tags=["records"])
async def find_latest(
    call: TheCall,
    name: TopicName,
    key: KeyText = None,
    key_base64: KeyBase64 = None,
    partition: OnePartition = None,
    shown: Shown = "text",
) -> FoundRecord:
    """The newest record with a key, or 404. The caller needs the right to READ the topic.

    Every record counts that was acknowledged before the call, settled or not. The newest record of a partition is the
    one with the greatest offset. If several partitions have the key, the newest by timestamp counts. A tombstone is a
    record too: `tombstone` says that it is one.
    """
    if (key is None) == (key_base64 is None):
        raise BadInput("give either `key` or `key_base64`")
    wanted = key.encode() if key is not None else from_base64("key_base64", key_base64 or "")
    topic = await call.topic(name, Operation.READ)
    own = call.services
    call.usage.reads()
    async with held(own):
        found = await own.lookups.latest(place_of(own, topic), wanted, partition)
    return await found_record(own, topic, found, Format(shown), "the key")


ROUTES = (find_record, find_latest)
