"""The part of the state for streams: creating, configuring, trimming and dropping them."""

from __future__ import annotations

import uuid

import msgspec

from headwater.state.commands.streams import ConfigureStreams, CreateStreams, DropStreams, TrimStreams
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import I64_MAX, StreamsDomain
from headwater.state.streams.index import OffsetIndex
from headwater.state.streams.producers import Producers
from headwater.state.streams.stream import Stream
from headwater.state.streams.swaps import note_end, release
from headwater.types import StreamId


def _create(state: StreamsDomain, epoch: int, command: CreateStreams) -> Result:
    if not all(0 < stream <= I64_MAX for stream in command.streams):
        return Refused(Reason.INVALID, "a stream's id is out of range")
    for partition, stream in enumerate(command.streams, command.first_partition):
        if stream not in state.streams:
            state.streams[stream] = Stream(StreamId(stream), command.topic, partition, command.config.append_time)
    state.roll("create", command.streams)
    return Done()


def _configure(state: StreamsDomain, epoch: int, command: ConfigureStreams) -> Result:
    for stream in command.streams:
        if stream in state.streams:
            state.streams[stream].append_time = command.config.append_time
    return Done()


def _drop(state: StreamsDomain, epoch: int, command: DropStreams) -> Result:
    for part in state.parts():
        part.dropped(state, command.streams)
    for name in command.streams:
        stream = state.streams.pop(name, None)
        if stream is not None:
            _release(state, stream, len(stream.index))
            state.moved(name)
    state.roll("drop", command.streams)
    return Done()


def _trim(state: StreamsDomain, epoch: int, command: TrimStreams) -> Result:
    moved = 0
    for name, start in command.starts:
        stream = state.streams.get(name)
        if stream is None or not stream.log_start < start <= stream.end:
            continue
        stream.log_start = start
        stream.settled = max(stream.settled, start)
        _release(state, stream, stream.index.find(start))
        if stream.advance():
            note_end(state, stream)
        stream.forget_aborted()
        moved += 1
        state.roll("trim", name, start)
        state.moved(name)
    return Done(moved)


def _release(state: StreamsDomain, stream: Stream, entries: int) -> None:
    release(state, stream, stream.index.drop(entries))


# --- image ---------------------------------------------------------------------------------------------


class StreamImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A stream inside a checkpoint."""

    id: int
    topic: int
    partition: int
    append_time: bool
    next_offset: int
    log_start: int
    settled: int
    size: int
    index: bytes
    producers: tuple[list[tuple[int, int, int, int, list[int]]], list[tuple[int, int]]] | None


class HeadsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """All streams of a domain inside a checkpoint. `StreamImage.topic` is a place in the list of topics."""

    topics: list[bytes]
    streams: list[StreamImage]


def _pack(state: StreamsDomain) -> HeadsImage:
    topics: dict[uuid.UUID, int] = {}
    streams = [
        StreamImage(
            id=s.id,
            topic=topics.setdefault(s.topic, len(topics)),
            partition=s.partition,
            append_time=s.append_time,
            next_offset=s.next_offset,
            log_start=s.log_start,
            settled=s.settled,
            size=s.size,
            index=s.index.pack(),
            producers=s.producers.pack() if s.producers is not None else None,
        )
        for s in state.streams.values()
    ]
    return HeadsImage([topic.bytes for topic in topics], streams)


def _unpack(state: StreamsDomain, image: HeadsImage) -> None:
    topics = [uuid.UUID(bytes=topic) for topic in image.topics]
    state.streams = {}
    for s in image.streams:
        stream = Stream(StreamId(s.id), topics[s.topic], s.partition, s.append_time)
        stream.next_offset, stream.log_start, stream.size = s.next_offset, s.log_start, s.size
        stream.settled = s.settled
        stream.index = OffsetIndex(s.index)
        stream.producers = Producers.unpack(*s.producers) if s.producers is not None else None
        state.streams[s.id] = stream


PART: Part[StreamsDomain, HeadsImage] = Part(
    name="streams",
    commands={CreateStreams: _create, ConfigureStreams: _configure, DropStreams: _drop, TrimStreams: _trim},
    format=1,
    image=HeadsImage,
    pack=_pack,
    unpack=_unpack,
    empty=lambda: HeadsImage([], []),
)
