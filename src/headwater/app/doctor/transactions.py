"""The doctor's checks of transactions: ids, streams, markers and aborted ranges must agree."""

from __future__ import annotations

from headwater.app.doctor.report import Report
from headwater.state.streams.index import COMMIT, MARKER, MARKER_BYTES, IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.transactions import LAST_EPOCH, Transaction
from headwater.state.streams.stream import Stream

HANGING = 2
"""A transaction that is open for so many of its time-outs hangs: the broker that watches it should have ended it."""


def check_transactions(state: StreamsState, report: Report) -> None:
    """Check ids against streams, and streams against ids. A stream may be part of a transaction without records."""
    opened = {found.id for found in state.transactions.opened()}
    for found in state.transactions:
        report.count("transactional ids")
        _check_id(state, found, found.id in opened, report)
    for stream in state.streams.values():
        last_markers = check_markers(stream, report)
        _check_running(state, stream, report)
        _check_aborted(stream, report)
        _check_records_run(state, stream, last_markers, report)


def _check_id(state: StreamsState, found: Transaction, opened: bool, report: Report) -> None:
    where = f"transactional id {found.id!r}"
    if found.open != opened:
        report.add("transactions", where, f"its phase is {found.phase.name}, but it is listed as {_word(opened)}")
    if state.transactions.of_producer(found.producer) is not found:
        report.add("transactions", where, f"its producer id {found.producer} belongs to another")
    if not 0 <= found.epoch <= LAST_EPOCH:
        report.add("transactions", where, f"its epoch cannot be {found.epoch}")
    if not found.open and (found.streams or found.groups):
        report.add("transactions", where, "has partitions or groups without an open transaction")
    if not found.open:
        return
    report.count("open transactions")
    for name in found.streams.keys() - state.streams.keys():
        report.add("transactions", where, f"has joined stream {name}, which is missing")
    for group, staged in found.groups.items():
        if staged and state.groups.get(group) is None:
            report.add("transactions", where, f"has offsets for the group {group!r}, which is missing")
    open_ms = state.clock_ms - found.opened_ms
    if open_ms > HANGING * found.timeout_ms:
        report.notes.append(
            f"the transaction of {found.id!r} is hanging: it is open for {open_ms // 1000} s, with a time-out of "
            f"{found.timeout_ms // 1000} s. Its partitions are read and settled up to its first record only. "
            f"`headwater txn abort` ends it"
        )


def _word(opened: bool) -> str:
    return "open" if opened else "not open"


def check_markers(stream: Stream, report: Report) -> dict[int, int]:
    """Check the form of markers. Returns the last marker's offset in the index by producer id."""
    last: dict[int, int] = {}
    for entry in stream.index:
        if entry.flags & MARKER:
            report.count("markers")
            last[entry.producer] = entry.start
            flaw = _marker_flaw(entry)
        else:
            wrong = entry.flags & COMMIT or entry.producer_epoch
            flaw = "has flags or an epoch that only a marker has" if wrong else ""
        if flaw:
            report.add("markers", f"stream {stream.id} at {entry.start}", flaw)
    return last


def _marker_flaw(entry: IndexEntry) -> str:
    if entry.flags & ~(MARKER | COMMIT):
        return f"is a marker with the flags {entry.flags}"
    if entry.end - entry.start != 1 or entry.length != MARKER_BYTES or entry.position:
        return f"is a marker of {entry.end - entry.start} offsets and {entry.length} bytes"
    if entry.producer >= 1 << 63 or entry.producer_epoch > LAST_EPOCH + 1:
        return f"is a marker of producer {entry.producer} with epoch {entry.producer_epoch}"
    return ""


def _check_running(state: StreamsState, stream: Stream, report: Report) -> None:
    """Check that each producer that runs in a stream has an open transaction with it, and that first offsets rise."""
    where, before = f"stream {stream.id}", -1
    for producer, first in stream.running.items():
        found = state.transactions.of_producer(producer)
        if found is None or not found.open:
            report.add("transactions", where, f"producer {producer} runs from {first} on without an open transaction")
        elif stream.id not in found.streams:
            report.add("transactions", where, f"producer {producer} runs, but {found.id!r} has not joined the stream")
        if not before < first < stream.next_offset:
            report.add("transactions", where, f"producer {producer} cannot run from {first} on")
        before = max(before, first)


def _check_aborted(stream: Stream, report: Report) -> None:
    """Check that aborted ranges are in order, that each ends with its marker, and that none is kept too long."""
    kept_from = max(stream.settled, stream.log_start)
    before, stable = -1, -1
    ends: dict[int, int] = {}
    for found in stream.aborted:
        report.count("aborted ranges")
        where = f"stream {stream.id}, aborted from {found.first} to {found.marker}"
        if found.marker <= before or found.stable < stable:
            report.add("aborted", where, "is out of order")
        if not ends.get(found.producer, -1) < found.first < found.marker or found.stable > found.marker + 1:
            report.add("aborted", where, f"cannot be, with the stable offset {found.stable}")
        before, stable = max(before, found.marker), max(stable, found.stable)
        ends[found.producer] = found.marker
        if found.marker < kept_from:
            report.add("aborted", where, f"is kept, but readers begin at {kept_from}")
            continue
        i = stream.index.find(found.marker)
        entry = stream.index[i] if i < len(stream.index) else None
        ours = entry is not None and entry.marker and not entry.commits and entry.producer == found.producer
        if entry is None or entry.start != found.marker or not ours:
            report.add("aborted", where, f"producer {found.producer} has no marker of an abort at its end")
    for producer, first in stream.running.items():
        if first <= ends.get(producer, -1):
            report.add("aborted", f"stream {stream.id}", f"producer {producer} runs from {first} on, which is aborted")


def _check_records_run(state: StreamsState, stream: Stream, last_markers: dict[int, int], report: Report) -> None:
    """Check that readers stop before the records of open transactions.

    A producer whose newest batch here has the transaction's epoch and no marker behind it has records in the open
    transaction. Batches that are settled or gone had their marker.
    """
    if stream.producers is None:
        return
    for producer, known in stream.producers.items():
        found = state.transactions.of_producer(producer)
        if found is None or not found.open or stream.id not in found.streams or producer in stream.running:
            continue
        newest = known.recent[-1]
        kept = newest >= max(stream.settled, stream.log_start)
        if known.epoch == found.epoch and kept and last_markers.get(producer, -1) < newest:
            where = f"stream {stream.id} at {newest}"
            report.add("transactions", where, f"belongs to the open transaction of {found.id!r}, but does not run")
