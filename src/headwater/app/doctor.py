"""`headwater doctor`: does what the metadata says agree with itself and with what is stored?

Everything is read from the ledger and the object store, by a state of its own; nothing is changed. On a live cluster it
looks at one moment: an object that goes or comes meanwhile is looked at again before it is reported.
"""

from __future__ import annotations

import contextlib

from headwater.app.doctor_tables import check_followers, check_segments, check_tables
from headwater.app.node import DOMAINS, new_state
from headwater.app.report import Report
from headwater.config import Settings
from headwater.errors import CorruptObject, HeadwaterError, Truncated
from headwater.lake.tables import make_followers
from headwater.log import wal
from headwater.log.batch import offsets_of
from headwater.metadata import open_ledger
from headwater.metadata.base import State
from headwater.metadata.checkpoint import decode_checkpoint, load_state, replay
from headwater.metadata.cluster import ClusterState
from headwater.metadata.index import IndexEntry
from headwater.metadata.ledger import Ledger
from headwater.metadata.streams import Stream, StreamsState
from headwater.objects import ObjectMissing, ObjectStore, open_store
from headwater.types import CLUSTER, Domain, WalId


async def examine(settings: Settings) -> Report:
    """Look at a cluster's ledger and objects."""
    report = Report()
    ledger = open_ledger(settings.ledger_url, settings.object_store)
    store = open_store(settings.objects_url, settings.object_store)
    followers = make_followers(store, settings.lake, options=settings.object_store)
    try:
        cluster = new_state(CLUSTER)
        await _load(ledger, store, cluster, report)
        for domain in DOMAINS:
            state = new_state(domain)
            await _load(ledger, store, state, report)
            if isinstance(state, StreamsState) and isinstance(cluster, ClusterState):
                check_topics(cluster, state, report)
                for stream in state.streams.values():
                    check_stream(stream, report)
                check_references(state, report)
                check_reservations(state, report)
                check_tables(state, report)
                await check_segments(store, state, report)
                await check_followers(followers, state, report)
                await _check_objects(ledger, store, state, report)
    finally:
        for follower in followers:
            await follower.close()
        await ledger.close()
        await store.close()
    return report


async def _load(ledger: Ledger, store: ObjectStore, state: State, report: Report) -> None:
    """Checkpoint and ledger must give a state; the older checkpoint must lead to the same one."""
    name = f"domain {state.domain}"
    try:
        await load_state(ledger, store, state)
        await replay(ledger, state)
        report.count("ledger positions", state.position)
        pointer = await ledger.pointer(state.domain)
        for position, path in [(pointer.position, pointer.path), pointer.older or (0, "")] if pointer else []:
            if not path:
                continue
            other = new_state(state.domain)
            try:
                decode_checkpoint(await store.get(path), other)
                await replay(ledger, other)
            except (ObjectMissing, CorruptObject, Truncated) as error:
                report.add("checkpoint", f"{name} at {position}", error)
                continue
            report.count("checkpoints")
            if other.position == state.position and other.digest != state.digest:
                report.add("checkpoint", f"{name} at {position}", "leads to another state than its successor")
    except HeadwaterError as error:
        report.add("ledger", name, error)


def check_topics(cluster: ClusterState, state: StreamsState, report: Report) -> None:
    """Every partition that can be used has a stream, and no stream is without a topic."""
    owned = set()
    for topic in cluster.topics.values():
        if topic.domain != state.domain:
            continue
        report.count("topics")
        owned.update(topic.streams)
        for partition, stream_id in enumerate(topic.streams[: topic.ready]):
            stream = state.streams.get(stream_id)
            if stream is None and not topic.deleting:
                report.add("topics", f"{topic.name}-{partition}", f"stream {stream_id} is missing")
            elif stream is not None and (stream.topic != topic.id or stream.partition != partition):
                report.add("topics", f"{topic.name}-{partition}", f"stream {stream_id} belongs to another")
    for stream_id in state.streams.keys() - owned:
        report.add("topics", f"stream {stream_id}", "belongs to no topic")


def check_stream(stream: Stream, report: Report) -> None:
    """Entries follow each other without overlap up to the head; sizes add up; the log start lies in the log."""
    report.count("streams")
    end: int | None = None
    size: int | None = None
    running = -1
    for entry in stream.index:
        report.count("index entries")
        where = f"stream {stream.id} at {entry.start}"
        if end is not None and entry.start != end:
            report.add("index", where, f"begins at {entry.start} where {end} was to follow")
        if entry.end <= entry.start or (entry.length <= 0 and (entry.in_wal or entry.file)):
            report.add("index", where, "is empty")
        if size is not None and entry.cumulative_size != size + entry.length:
            report.add("index", where, "sizes do not add up")
        running = max(running, entry.max_timestamp)
        if entry.running_max_timestamp != running:
            report.add("index", where, "the running maximum of timestamps is wrong")
        end, size = entry.end, entry.cumulative_size
    if end is not None and end != stream.next_offset:
        report.add("heads", f"stream {stream.id}", f"the index ends at {end}, the head at {stream.next_offset}")
    if size is not None and size != stream.size:
        report.add("heads", f"stream {stream.id}", f"the index ends at {size} bytes, the head at {stream.size}")
    if end is None and stream.log_start != stream.next_offset:
        report.add("heads", f"stream {stream.id}", "has records but no index entries")
    if end is not None and not stream.index[0].start <= stream.log_start <= stream.next_offset:
        report.add("heads", f"stream {stream.id}", f"the log start {stream.log_start} lies outside the index")


def check_references(state: StreamsState, report: Report) -> None:
    """Objects are counted exactly as often as entries name them."""
    named: dict[WalId, int] = {}
    for stream in state.streams.values():
        for entry in stream.index:
            if entry.in_wal:
                named[entry.object] = named.get(entry.object, 0) + 1
    for known in state.objects:
        if known.references != named.pop(known.id, 0):
            report.add("references", known.id, f"counted as {known.references}")
    for object_id in named:
        report.add("references", object_id, "is named by an entry but not known")


def check_reservations(state: StreamsState, report: Report) -> None:
    """Reserved entries and open reservations are the same, and readers stop before the first of a stream."""
    wanted = {(name, start, end): r.number for r in state.reservations.values() for name, start, end in r.parts}
    for stream in state.streams.values():
        reserved = [entry for entry in stream.index if entry.reservation]
        if tuple(entry.start for entry in reserved) != stream.open:
            report.add("reservations", f"stream {stream.id}", f"the head says that {stream.open} are open")
        for entry in reserved:
            if wanted.pop((int(stream.id), entry.start, entry.end), None) != entry.reservation:
                report.add("reservations", f"stream {stream.id} at {entry.start}", "is reserved by nobody")
    for (name, start, _), number in wanted.items():
        report.add("reservations", f"stream {name} at {start}", f"is not kept for reservation {number}")
    for found in state.reservations.values():
        report.count("reservations")
        if state.is_fenced(found.owner) or not 0 < found.number <= state.last_reservation:
            report.add("reservations", f"reservation {found.number}", f"of epoch {found.owner} cannot be filled")


async def _check_objects(ledger: Ledger, store: ObjectStore, state: StreamsState, report: Report) -> None:
    """Live objects are whole, and hold what the index says of them. Orphans are counted, not reported."""
    entries: dict[WalId, list[tuple[Stream, IndexEntry]]] = {}
    for stream in state.streams.values():
        for entry in stream.index:
            if entry.in_wal:
                entries.setdefault(entry.object, []).append((stream, entry))
    for object_id, named in entries.items():
        known = state.objects.get(object_id)
        if known is None:
            continue
        path = wal.path_of(known.zone, state.domain, known.created_ms, object_id)
        report.count("objects")
        try:
            data = await store.get(path)
            parsed = wal.parse(data)
        except ObjectMissing as error:
            if await _still_named(ledger, store, state.domain, object_id):
                report.add("objects", path, error)
            continue
        except HeadwaterError as error:
            report.add("objects", path, error)
            continue
        if parsed.id != object_id or parsed.domain != state.domain or len(data) != known.size:
            report.add("objects", path, "is another object than the metadata says")
            continue
        chunks = {chunk.stream: chunk for chunk in parsed.chunks}
        for stream, entry in named:
            chunk = chunks.get(stream.id)
            inside = chunk is not None and (
                chunk.position <= entry.position and entry.position + entry.length <= chunk.position + chunk.length
            )
            offsets = -1
            if inside:
                with contextlib.suppress(CorruptObject):
                    runs = wal.batches_between(data, entry.position, entry.position + entry.length)
                    offsets = sum(offsets_of(batch) for batch in runs)
            if offsets != entry.end - entry.start:
                report.add("objects", path, f"does not hold stream {stream.id} from {entry.start} to {entry.end}")
    await _count_orphans(store, state, report)


async def _still_named(ledger: Ledger, store: ObjectStore, domain: Domain, object_id: WalId) -> bool:
    fresh = new_state(domain)
    await load_state(ledger, store, fresh)
    await replay(ledger, fresh)
    known = fresh.objects.get(object_id) if isinstance(fresh, StreamsState) else None
    return known is not None and known.references > 0


async def _count_orphans(store: ObjectStore, state: StreamsState, report: Report) -> None:
    orphans = 0
    async for info in store.scan(wal.ROOT):
        object_id = wal.id_of_path(info.path)
        if f"/domain={state.domain}/" in info.path and object_id is not None:
            orphans += state.objects.get(object_id) is None
    if orphans:
        report.notes.append(f"{orphans} WAL objects in domain {state.domain} are named by no record")
