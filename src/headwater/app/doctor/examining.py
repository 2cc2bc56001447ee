"""`headwater doctor`: checks that the metadata is consistent, and agrees with the stored objects.

The doctor builds its own state from the ledger and the object store, and changes nothing. On a live cluster it checks
the state of one moment: an object that is created or deleted meanwhile is checked again before it is reported.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.app.absence import no_cluster
from headwater.app.directories import begin
from headwater.app.doctor.objects import ObjectCheck, Progress
from headwater.app.doctor.report import Report
from headwater.app.doctor.tables import check_followers, check_holds, check_segments, check_tables
from headwater.app.doctor.transactions import check_transactions
from headwater.errors import Damaged, HeadwaterError, ObjectMissing, Truncated
from headwater.lake.tables import make_followers
from headwater.ledger.contract import Ledger
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import decode_checkpoint, load_state, replay
from headwater.replica.domains import Domains, new_state
from headwater.settings.settings import Settings
from headwater.state.cluster.state import ClusterState
from headwater.state.machine import State
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import DOMAINS, Position, WalId


async def examine(settings: Settings, *, deep: bool = False, tell: Callable[[Progress], None] | None = None) -> Report:
    """Check a cluster's ledger and objects. With `deep`, all bytes of all segments, too."""
    begin(settings, writing=False)
    report = Report()
    domains = Domains.open(settings)
    ledger, store = domains.ledger, domains.store
    followers = make_followers(store, settings.lake, options=settings.object_store)
    try:
        seen = await domains.marks.look()
        cluster, *states = [new_state(domain) for domain in DOMAINS]
        for state in (cluster, *states):
            await _load(ledger, store, state, report)
        if isinstance(cluster, ClusterState) and not report.findings:
            seen.check(cluster, [state for state in states if isinstance(state, StreamsState)])
            if not cluster.position:
                raise no_cluster(settings)
        for state in states:
            if isinstance(state, StreamsState) and isinstance(cluster, ClusterState):
                check_topics(cluster, state, report)
                for stream in state.streams.values():
                    check_stream(stream, report)
                check_references(state, report)
                check_reservations(state, report)
                check_transactions(state, report)
                check_links(cluster, state, report)
                check_tables(state, report)
                check_holds(state, report)
                await check_segments(store, state, report)
                await check_followers(followers, state, report)
                objects = ObjectCheck(ledger, store, cluster, state, report, Progress(tell))
                await objects.wal()
                if deep:
                    await objects.segments()
    finally:
        for follower in followers:
            await follower.close()
        await domains.close()
    return report


async def _load(ledger: Ledger, store: ObjectStore, state: State, report: Report) -> None:
    """Load the state from the checkpoint and the ledger. The older checkpoint must lead to the same state."""
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
                decode_checkpoint(await store.get(path), other, Position(position))
                await replay(ledger, other)
            except (ObjectMissing, Damaged, Truncated) as error:
                report.add("checkpoint", f"{name} at {position}", f"{path} cannot be used: {error}")
                continue
            report.count("checkpoints")
            if other.position == state.position and other.digest != state.digest:
                report.add("checkpoint", f"{name} at {position}", "leads to another state than its successor")
    except HeadwaterError as error:
        report.add("ledger", name, error)


def check_topics(cluster: ClusterState, state: StreamsState, report: Report) -> None:
    """Check that every usable partition has a stream, and every stream a topic."""
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
    """Check that index entries are contiguous up to the head, sizes add up, and the log start is in the log."""
    report.count("streams")
    end: int | None = None
    size: int | None = None
    running = -1
    for entry in stream.index:
        report.count("index entries")
        where = f"stream {stream.id} at {entry.start}"
        if end is not None and entry.start != end:
            report.add("index", where, f"begins at {entry.start}, but {end} is next")
        if entry.end <= entry.start or (entry.length <= 0 and (entry.unsettled or entry.file)):
            report.add("index", where, "is empty")
        if size is not None and entry.cumulative_size != size + entry.length:
            report.add("index", where, "sizes do not add up")
        if not entry.marker:  # a marker's timestamp is not that of a record
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
        report.add("heads", f"stream {stream.id}", f"the log start {stream.log_start} is outside the index")


def check_references(state: StreamsState, report: Report) -> None:
    """Check that the reference count of each object is the number of entries that name it."""
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
    """Check that reserved entries match open reservations, and that readers stop before the first of a stream."""
    wanted = {(name, start, end): r.number for r in state.reservations.values() for name, start, end in r.parts}
    for stream in state.streams.values():
        reserved = [entry for entry in stream.index if entry.reservation]
        if tuple(entry.start for entry in reserved) != stream.open:
            report.add("reservations", f"stream {stream.id}", f"the head says that {stream.open} are open")
        for entry in reserved:
            if wanted.pop((int(stream.id), entry.start, entry.end), None) != entry.reservation:
                report.add("reservations", f"stream {stream.id} at {entry.start}", "has no reservation")
    for (name, start, _), number in wanted.items():
        report.add("reservations", f"stream {name} at {start}", f"is not kept for reservation {number}")
    for found in state.reservations.values():
        report.count("reservations")
        if state.is_fenced(found.owner) or not 0 < found.number <= state.last_reservation:
            report.add("reservations", f"reservation {found.number}", f"of epoch {found.owner} cannot be filled")


def check_links(cluster: ClusterState, state: StreamsState, report: Report) -> None:
    """Check that mirrors belong to linked topics, and that nobody else can have written to them."""
    links = cluster.links
    for linked in links.topics.values():
        topic = cluster.topics.get(linked.topic)
        if topic is not None and topic.domain != state.domain:
            continue
        report.count("linked topics")
        if topic is None or topic.deleting:
            report.add("links", linked.topic, "is linked, and does not exist")
        if linked.link not in links.links:
            report.add("links", linked.topic, f"is a topic of link {linked.link!r}, which does not exist")
    for stream in state.streams.values():
        mirror = stream.mirror
        if not mirror.generation or mirror.generation > links.last_number:
            continue  # no mirror, or one of a change that came after this state of the cluster
        report.count("mirrors", mirror.on)
        found = links.topics.get(stream.topic)
        where = f"stream {stream.id}"
        if found is not None and mirror.generation > found.generation:
            report.add("mirrors", where, f"is at generation {mirror.generation}, its topic at {found.generation}")
        if found is not None and mirror.generation == found.generation and mirror.on != found.mirrored:
            report.add("mirrors", where, f"is {'' if mirror.on else 'not '}a mirror; its topic says otherwise")
        if found is None and mirror.on and stream.topic in cluster.topics and not cluster.topics[stream.topic].deleting:
            report.add("mirrors", where, "is a mirror, and no link copies its topic")
        if mirror.on and (stream.open or stream.running):
            report.add("mirrors", where, "is a mirror with open reservations or transactions")
