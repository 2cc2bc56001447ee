"""The metrics of a broker."""

from __future__ import annotations

from typing import Any

from headwater.broker.broker import Broker
from headwater.broker.peers.server import PeerServer
from headwater.broker.registry import APIS
from headwater.log.housekeeping import Housekeeper
from headwater.log.wal.cache import WalCache
from headwater.log.wal.zone_cache import ZoneCache
from headwater.ops.metrics import Metric
from headwater.replica.described import oldest_seconds
from headwater.replica.replica import Replica
from headwater.replica.room import LEDGER, OBJECTS
from headwater.state.streams.state import StreamsState


def collect(broker: Broker, cache: WalCache, housekeeper: Housekeeper) -> list[Metric]:
    """All metrics of a broker."""
    stats, telemetry, groups = broker.stats, broker.telemetry, broker.coordinator
    replicas: list[Replica[Any]] = [broker.cluster, *broker.domains.values()]
    by_api = [({"api": APIS[key].name}, count) for key, count in sorted(stats.requests.items())]
    seconds = [({"api": APIS[key].name}, s) for key, s in sorted(stats.request_seconds.items())]
    streams = [({"domain": str(d)}, len(r.state.streams)) for d, r in broker.domains.items()]
    entries = [
        ({"domain": str(d)}, sum(len(s.index) for s in r.state.streams.values())) for d, r in broker.domains.items()
    ]

    def one(value: float) -> list[tuple[dict[str, str], float]]:
        return [({}, value)]

    return [
        Metric("headwater_connections", "gauge", "Open connections.", one(stats.connections)),
        Metric("headwater_connections_total", "counter", "Connections ever.", one(stats.connections_total)),
        Metric("headwater_inflight_bytes", "gauge", "Bytes of requests not answered and of batches not decided.",
               one(broker.budget.used)),
        Metric("headwater_refused_total", "counter", "What limits and checks kept out, by reason.",
               [({"reason": reason}, count) for reason, count in sorted(stats.refusals.items())]),
        Metric("headwater_logins_total", "counter", "Log-ins, by how they ended.",
               [({"outcome": "granted"}, broker.logins.granted), ({"outcome": "refused"}, broker.logins.refused)]),
        Metric("headwater_requests_total", "counter", "Requests answered, by API.", by_api),
        Metric("headwater_request_seconds_total", "counter", "Time to answer, by API.", seconds),
        Metric("headwater_produced_bytes_total", "counter", "Batch bytes taken.", one(stats.produced_bytes)),
        Metric("headwater_produced_records_total", "counter", "Records taken.", one(stats.produced_records)),
        Metric("headwater_fetched_bytes_total", "counter", "Batch bytes served.", one(stats.fetched_bytes)),
        Metric("headwater_throttled_requests_total", "counter", "Requests whose client had to be silent for a while.",
               one(stats.throttled_requests)),
        Metric("headwater_throttle_seconds_total", "counter", "How long clients had to be silent.",
               one(stats.throttle_seconds)),
        Metric("headwater_response_bytes", "gauge", "Bytes of answers that clients have not read yet.",
               one(broker.responses.bytes)),
        Metric("headwater_telemetry_pushes_total", "counter", "Pushes of clients' metrics.", one(telemetry.pushes)),
        Metric("headwater_telemetry_bytes_total", "counter", "Bytes of clients' metrics.", one(telemetry.bytes)),
        Metric("headwater_telemetry_metrics_total", "counter", "Metrics that clients pushed.", one(telemetry.metrics)),
        Metric("headwater_telemetry_refused_total", "counter", "Telemetry requests refused.", one(telemetry.refused)),
        Metric("headwater_fetch_sessions", "gauge", "Open fetch sessions.", one(len(broker.sessions))),
        Metric("headwater_groups", "gauge", "Groups coordinated here that have or had members.",
               [({"type": kind, "state": state}, n) for (kind, state), n in sorted(groups.states().items())]),
        Metric("headwater_group_members", "gauge", "Members of the groups coordinated here.", one(groups.members())),
        Metric("headwater_group_bytes", "gauge", "Bytes that members of the groups coordinated here have brought.",
               one(groups.shares.total)),
        Metric("headwater_group_bytes_largest", "gauge", "Such bytes in the groups of the caller who has most.",
               one(groups.shares.largest)),
        Metric("headwater_opened_owed_bytes", "gauge", "What batches of all callers opened to beyond their share.",
               one(broker.opening.expansion.owed)),
        Metric("headwater_opened_refused_total", "counter", "Batches refused because their callers' share was used up.",
               one(broker.opening.expansion.refused)),
        Metric("headwater_group_changes_total", "counter", "Decisions about groups stored.", one(groups.changes)),
        Metric("headwater_group_offset_fetches_waiting", "gauge",
               "Requests for committed offsets that wait for the ledger.", one(groups.looks)),
        Metric("headwater_committed_offsets_total", "counter", "Offsets committed.", one(groups.commits)),
        Metric("headwater_wal_flushes_total", "counter", "WAL objects begun.",
               one(sum(w.flushes for w in broker.writers.all()))),
        Metric("headwater_wal_bytes_total", "counter", "WAL bytes begun.",
               one(sum(w.bytes_written for w in broker.writers.all()))),
        Metric("headwater_wal_hedged_total", "counter", "WAL objects sent a second time to a slow store.",
               one(sum(w.hedged for w in broker.writers.all()))),
        Metric("headwater_wal_cache_bytes", "gauge", "WAL bytes in memory.", one(cache.bytes)),
        Metric("headwater_wal_cache_hits_total", "counter", "Objects found in memory.", one(cache.hits)),
        Metric("headwater_wal_cache_misses_total", "counter", "Objects not found in memory.", one(cache.misses)),
        Metric("headwater_wal_gets_total", "counter", "WAL objects read from the store.", one(cache.store_reads)),
        Metric("headwater_store_full", "gauge", "1 while there is no room in a store.",
               [({"store": store}, store in broker.domains.room.missing()) for store in (LEDGER, OBJECTS)]),
        Metric("headwater_ledger_position", "gauge", "Last record applied.",
               [({"domain": str(r.domain)}, r.state.position) for r in replicas]),
        Metric("headwater_ledger_commits_total", "counter", "Records appended.",
               [({"domain": str(r.domain)}, r.commits) for r in replicas]),
        Metric("headwater_ledger_bytes_total", "counter", "Bytes of the records applied, since the start.",
               [({"domain": str(r.domain)}, r.bytes_applied) for r in replicas]),
        Metric("headwater_ledger_attempts_total", "counter", "Appends tried.",
               [({"domain": str(r.domain)}, r.attempts) for r in replicas]),
        Metric("headwater_ledger_writers", "gauge", "Processes that hold an epoch, and so may append.",
               one(len(broker.cluster.state.processes))),
        Metric("headwater_streams", "gauge", "Streams of a domain.", streams),
        Metric("headwater_index_entries", "gauge", "Offset index entries of a domain.", entries),
        Metric("headwater_gc_objects_total", "counter", "WAL objects deleted.", one(housekeeper.deleted_objects)),
        Metric("headwater_gc_orphans_total", "counter", "Orphans deleted.", one(housekeeper.deleted_orphans)),
        Metric("headwater_retention_trims_total", "counter", "Log starts moved by retention.",
               one(housekeeper.trimmed_streams)),
        Metric("headwater_retention_waiting", "gauge", "Streams whose retention waits for settling.",
               [({"domain": str(d)}, count) for d, count in housekeeper.waiting_streams.items()]),
        Metric("headwater_reservations", "gauge", "Bulk appends under way, before which readers stop.",
               [({"domain": str(d)}, len(r.state.reservations)) for d, r in broker.domains.items()]),
        Metric("headwater_reservations_expired_total", "counter", "Bulk appends that did not come in time.",
               one(housekeeper.released_reservations)),
        Metric("headwater_holds", "gauge", "Processes that keep what their queries read.",
               [({"domain": str(d)}, len(r.state.held)) for d, r in broker.domains.items()]),
        Metric("headwater_holds_oldest_seconds", "gauge", "Age of the oldest hold that keeps something from deletion.",
               one(oldest_seconds(r.state for r in broker.domains.values()))),
        *of_transactions(broker),
        Metric("headwater_transactional_ids_forgotten_total", "counter",
               "Transactional ids forgotten: no producer had used them for long.", one(housekeeper.forgotten_ids)),
        Metric("headwater_out_of_rotation", "gauge", "1 while clients are not sent here, because this broker is slow.",
               one(broker.membership.epoch in broker.cluster.state.rotation.out)),
        Metric("headwater_pace_microseconds", "gauge", "Time for nine of ten requests of late, -1 if there were none.",
               [({"kind": "publish"}, broker.pace.publish.last_us), ({"kind": "fetch"}, broker.pace.fetch.last_us)]),
        Metric("headwater_epoch", "gauge", "This process's epoch, 0 if none.", one(broker.membership.epoch)),
    ]  # fmt: skip


def of_transactions(broker: Broker) -> list[Metric]:
    """Metrics of transactions. Gauges are of a whole domain and the same at every broker; ends are counted once."""
    states = [({"domain": str(domain)}, replica.state) for domain, replica in broker.domains.items()]
    ended = broker.stats.transactions_ended
    return [
        Metric("headwater_transactional_ids", "gauge", "Transactional ids of a domain.",
               [(labels, len(state.transactions)) for labels, state in states]),
        Metric("headwater_transactions_open", "gauge", "Open transactions of a domain.",
               [(labels, state.transactions.open_count) for labels, state in states]),
        Metric("headwater_transactions_oldest_seconds", "gauge",
               "How long the oldest transaction of a domain is open, 0 if none is.",
               [(labels, _oldest_ms(state) / 1000) for labels, state in states]),
        Metric("headwater_stable_lag", "gauge",
               "Offsets between the stable offset and the end, in the partition of a domain that has most of them.",
               [(labels, max((s.end - s.stable for s in state.streams.values() if s.running), default=0))
                for labels, state in states]),
        Metric("headwater_transactions_ended_total", "counter", "Transactions ended through this broker, by how.",
               [({"kind": ending.value}, count) for ending, count in ended.items()]),
    ]  # fmt: skip


def _oldest_ms(state: StreamsState) -> int:
    opened = state.transactions.oldest_open()
    return max(0, state.clock_ms - opened.opened_ms) if opened is not None else 0


def of_peers(asking: ZoneCache | None, answering: PeerServer | None) -> list[Metric]:
    """Metrics of the requests between the brokers of a zone."""
    asked = {} if asking is None else {"found": asking.answered, "missing": asking.missing, "failed": asking.failed}
    answered: dict[str, int] = {}
    if answering is not None:
        answered = {"found": answering.found, "missing": answering.missing}
        answered |= {"failed": answering.failed, "refused": answering.refused}
    return [
        Metric("headwater_peer_requests_total", "counter", "WAL objects asked of other brokers, by how that ended.",
               [({"outcome": outcome}, count) for outcome, count in asked.items()]),
        Metric("headwater_peer_answers_total", "counter", "WAL objects other brokers asked for, by how that ended.",
               [({"outcome": outcome}, count) for outcome, count in answered.items()]),
    ]  # fmt: skip
