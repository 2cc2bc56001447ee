"""Compiled loops from WAL runs to columns: over batches, records and headers, with every number checked.

Importing this module imports numba, so callers import it inside the functions that need it. The loops keep their
progress between two calls in one array of numbers, `state`. They stop between two records when a piece is full, when
a column must grow, or when a batch must be decompressed. The next call continues there. Another array, `places`, says
where the columns are; the caller keeps these.
"""

from __future__ import annotations

from headwater.log.kernels.crc import checksum
from headwater.native.bytes import (
    LONG_MAX,
    Array,
    Number,
    is_utf8,
    read_number,
    read_varint,
)
from headwater.native.compiling import compiled, inlined
from headwater.native.pointers import address, bytes_at, bytes_of, copy, ints_at, longs_at, longs_of
from headwater.types import LAST_MS

DONE, FULL, GROW, OPEN = range(4)
CUT_SHORT, BAD_LENGTH, BAD_OFFSET, BAD_FIELD, BAD_BATCH, BAD_CRC, BAD_TIME, TOO_LARGE = range(10, 18)
FLAWS = {
    CUT_SHORT: "a record, or a number in it, is cut short",
    BAD_LENGTH: "a record's length does not match its fields",
    BAD_OFFSET: "offsets do not rise within a batch or between batches",
    BAD_FIELD: "a key, value or header has an impossible length",
    BAD_BATCH: "a batch's length, format or counts are impossible",
    BAD_CRC: "a batch's CRC does not match its bytes",
    BAD_TIME: "a record's timestamp does not fit 64 bits",
    TOO_LARGE: "a record is too large for a column",
}

# The numbers in `state`: how much of each column of the piece is filled, ...
ROWS, KEY_USED, VALUE_USED, RAW_USED, NAME_USED, CONTENT_USED, HEADERS = range(7)
NULL_TIMES, NULL_KEYS, NULL_VALUES, NULL_HEADERS, NULL_CONTENTS = range(7, 12)
PIECE_NUMBERS = 12
# ... after GROW the column and the size it needs, the position in the runs, ...
COLUMN, WANTED, FIRST_OFFSET, RUN, AT, OFFSET = range(12, 18)
# ... and the position in the batch.
POSITION, END, LEFT, LAST_DELTA, DELTA, BASE, BASE_TIME, FIXED_TIME = range(18, 26)
ATTRIBUTES, PRODUCER, EPOCH, SEQUENCE, CODEC = range(26, 31)
STATE_NUMBERS = 31

ABORTED_NUMBERS = 3
"""The numbers of an aborted transaction: producer id, offset of the first record, offset of the marker."""

ROW_COLUMN, KEY_COLUMN, VALUE_COLUMN, RAW_COLUMN, NAME_COLUMN, CONTENT_COLUMN, HEADER_COLUMN = range(7)
"""Columns that grow: all columns of fixed width together, the five of bytes, and the borders of headers."""

LONGS, INTS, BORDERS, FLAGS, KEY, VALUE, RAW, NAME, CONTENT, HEADER_BORDERS, HEADER_FLAGS, ROOMS = range(12)
"""Numbers in `places`: the addresses of the columns, then the room of each column that grows. Numbers and flags of rows
are in several columns of that room, one behind the other; borders have more room by `SPARE`."""
PLACE_NUMBERS = ROOMS + 7
SPARE = 64

MAX_ROWS = 100_000
MAX_PIECE_BYTES = 16 << 20
ROW_BYTES = 52
HEADER_BYTES = 8
"""The bytes of a row and of a header in the size of a piece, beside their variable parts."""
MAX_COLUMN_BYTES = (1 << 31) - 1

_PREFIX = 4
_BATCH_HEADER = 61
_LENGTH_OVERHEAD = 12
_CRC_FROM = 21
_CODEC_MASK, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_LAST_OFFSET = 1 << 62


@compiled
def _scan_headers(data: Array, at: int, stop: int, count: int) -> tuple[int, int, int, bool]:
    """(position after the headers or -1, bytes of names, bytes of contents, whether all names are UTF-8)"""
    names = contents = 0
    utf8 = True
    for _ in range(count):
        length, at = read_varint(data, at, stop)
        if at < 0 or length < 0 or length > stop - at:
            return -1, 0, 0, False
        if utf8:
            utf8 = is_utf8(data, at, at + length)
        at += length
        names += length
        length, at = read_varint(data, at, stop)
        if at < 0 or length < -1 or length > stop - at:
            return -1, 0, 0, False
        if length > 0:
            at += length
            contents += length
    return at, names, contents, utf8


@inlined
def _scan_record(data: Array, position: int, end: int) -> tuple[Number, ...]:
    """Check one record up to its headers; return the positions of its fields.

    (status, position after it, timestamp delta, offset delta, key at, its length, value at, its length, headers at,
    number of headers, the first one at)
    """
    length, at = read_varint(data, position, end)
    if at < 0 or length < 0 or length > end - at:
        return CUT_SHORT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    stop = at + length
    time, at = read_varint(data, at + 1, stop)
    if at < 0:
        return CUT_SHORT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    this, at = read_varint(data, at, stop)
    if at < 0:
        return CUT_SHORT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    key_length, at = read_varint(data, at, stop)
    if at < 0 or key_length < -1 or key_length > stop - at:
        return BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    key_at = at
    at += max(key_length, 0)
    value_length, at = read_varint(data, at, stop)
    if at < 0 or value_length < -1 or value_length > stop - at:
        return BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    value_at = at
    at += max(value_length, 0)
    headers_at = at
    headers, at = read_varint(data, at, stop)
    if at < 0 or headers < 0 or headers > (stop - at) >> 1:
        return BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    return DONE, stop, time, this, key_at, key_length, value_at, value_length, headers_at, headers, at


@compiled
def _store_headers(data: Array, at: int, stop: int, count: int, places: Array, state: Array) -> None:
    """Copy headers that `_scan_headers` has checked into their columns."""
    start = address(data)
    used, names, contents = state[HEADERS], state[NAME_USED], state[CONTENT_USED]
    borders, flags = ints_at(places[HEADER_BORDERS]), bytes_at(places[HEADER_FLAGS])
    second = places[ROOMS + HEADER_COLUMN] + SPARE
    for _ in range(count):
        length, at = read_varint(data, at, stop)
        copy(start + at, places[NAME] + names, length)
        at += length
        names += length
        length, at = read_varint(data, at, stop)
        if length >= 0:
            copy(start + at, places[CONTENT] + contents, length)
            at += length
            contents += length
            flags[used] = 1
        else:
            flags[used] = 0
            state[NULL_CONTENTS] += 1
        used += 1
        borders[used] = names
        borders[second + used] = contents
    state[HEADERS], state[NAME_USED], state[CONTENT_USED] = used, names, contents


@inlined
def _lacks(
    places: Array, state: Array, rows: int, keys: int, values: int, raws: int, names: int, contents: int, headers: int
) -> bool:
    """Whether a column has too little room. The first such column and the size that it needs are noted in `state`."""
    rooms = ROOMS
    if (
        rows <= places[rooms + ROW_COLUMN]
        and keys <= places[rooms + KEY_COLUMN]
        and values <= places[rooms + VALUE_COLUMN]
        and raws <= places[rooms + RAW_COLUMN]
        and names <= places[rooms + NAME_COLUMN]
        and contents <= places[rooms + CONTENT_COLUMN]
        and headers <= places[rooms + HEADER_COLUMN]
    ):
        return False
    wanted = (rows, keys, values, raws, names, contents, headers)
    for column in range(len(wanted)):
        if wanted[column] > places[rooms + column]:
            state[COLUMN], state[WANTED] = column, wanted[column]
            break
    return True


@compiled
def _fill(data: Array, places: Array, state: Array) -> Number:
    """Copy the remaining records of the batch in `state` into the columns of a piece. All arguments are pointers."""
    start = address(data)
    longs, ints = longs_at(places[LONGS]), ints_at(places[INTS])
    borders, flags = ints_at(places[BORDERS]), bytes_at(places[FLAGS])
    room = places[ROOMS + ROW_COLUMN]
    wide = room + SPARE
    position, end, left = state[POSITION], state[END], state[LEFT]
    delta, last = state[DELTA], state[LAST_DELTA]
    base, first_offset = state[BASE], state[FIRST_OFFSET]
    base_time, fixed = state[BASE_TIME], state[FIXED_TIME]
    producer, epoch = state[PRODUCER], state[EPOCH]
    attributes, sequence = state[ATTRIBUTES], state[SEQUENCE]
    row, keys, values = state[ROWS], state[KEY_USED], state[VALUE_USED]
    status = DONE
    while left > 0:
        (
            status, stop, time, this, key_at, key_length, value_at, value_length, headers_at, headers, first_header,
        ) = _scan_record(data, position, end)  # fmt: skip
        if status != DONE:
            break
        names = contents = raws = 0
        utf8 = True
        at = first_header
        if headers:
            at, names, contents, utf8 = _scan_headers(data, first_header, stop, headers)
            if at < 0:
                status = BAD_FIELD
                break
        if at != stop:
            status = BAD_LENGTH
            break
        if this <= delta or this > last:
            status = BAD_OFFSET
            break
        if fixed:
            time = base_time
        else:
            if (time > 0 and base_time > LONG_MAX - time) or (time < 0 and base_time < -LONG_MAX - 1 - time):
                status = BAD_TIME
                break
            time += base_time
        if base + this >= first_offset:
            if not utf8:
                raws, headers, names, contents = stop - headers_at, 0, 0, 0
            keys_to, values_to = keys + max(key_length, 0), values + max(value_length, 0)
            raws_to, headers_to = state[RAW_USED] + raws, state[HEADERS] + headers
            names_to, contents_to = state[NAME_USED] + names, state[CONTENT_USED] + contents
            size = keys_to + values_to + raws_to + names_to + contents_to
            size += headers_to * HEADER_BYTES + (row + 1) * ROW_BYTES
            if size > MAX_PIECE_BYTES or row >= MAX_ROWS:
                if row > 0:
                    status = FULL
                    break
                if size > MAX_COLUMN_BYTES:
                    status = TOO_LARGE
                    break
            if _lacks(places, state, row + 1, keys_to, values_to, raws_to, names_to, contents_to, headers_to):
                status = GROW
                break
            longs[row] = base + this
            longs[room + row] = time
            shown = 0 <= time <= LAST_MS
            longs[2 * room + row] = time * 1000 if shown else 0
            longs[3 * room + row] = producer
            ints[row] = attributes
            ints[room + row] = epoch
            ints[2 * room + row] = -1 if sequence < 0 else (sequence + this) & 0x7FFFFFFF
            flags[row] = shown
            flags[room + row] = key_length >= 0
            flags[2 * room + row] = value_length >= 0
            flags[3 * room + row] = utf8
            if not (shown and key_length >= 0 and value_length >= 0 and utf8):
                state[NULL_TIMES] += not shown
                state[NULL_KEYS] += key_length < 0
                state[NULL_VALUES] += value_length < 0
                state[NULL_HEADERS] += not utf8
            copy(start + key_at, places[KEY] + keys, keys_to - keys)
            copy(start + value_at, places[VALUE] + values, values_to - values)
            if headers:
                _store_headers(data, first_header, stop, headers, places, state)
            if raws:
                copy(start + headers_at, places[RAW] + state[RAW_USED], raws)
                state[RAW_USED] = raws_to
            keys, values = keys_to, values_to
            row += 1
            borders[row] = keys
            borders[wide + row] = values
            borders[2 * wide + row] = headers_to
            borders[3 * wide + row] = raws_to
        position = stop
        delta = this
        left -= 1
    state[ROWS], state[KEY_USED], state[VALUE_USED] = row, keys, values
    state[POSITION], state[DELTA], state[LEFT] = position, delta, left
    if status == DONE and position != end:
        return BAD_LENGTH
    return status


@compiled
def fill_records(data: Array, places: Array, state: Array) -> Number:
    """Copy the remaining records of the batch in `state` into the columns of a piece, which `places` names."""
    return _fill(bytes_of(data), longs_of(places), longs_of(state))


@compiled
def _is_aborted(aborted: Array, producer: int, offset: int) -> bool:
    """Whether a transactional batch at an offset is part of an aborted transaction.

    The transactions are sorted. Those of one producer do not overlap, so only the last one that begins at or before
    the offset can contain it.
    """
    low, high = 0, len(aborted)
    while low < high:
        middle = (low + high) // 2
        first = aborted[middle, 1]
        if aborted[middle, 0] < producer or (aborted[middle, 0] == producer and first <= offset):
            low = middle + 1
        else:
            high = middle
    return low > 0 and aborted[low - 1, 0] == producer and offset < aborted[low - 1, 2]


@compiled
def _enter_batch(data: Array, end: int, append_ms: int, aborted: Array, state: Array) -> int:
    """Check the batch at the current position of a run and enter it into `state`; returns OPEN if it is compressed.

    Batches without records to copy are passed over: those of aborted transactions, and those before the first offset.
    """
    at = state[AT]
    if end - at < _PREFIX + _BATCH_HEADER:
        return BAD_BATCH
    length = read_number(data, at, _PREFIX) & 0xFFFFFFFF
    at += _PREFIX
    if length < _BATCH_HEADER or length > end - at or read_number(data, at + 8, 4) != length - _LENGTH_OVERHEAD:
        return BAD_BATCH
    last, count = read_number(data, at + 23, 4), read_number(data, at + 57, 4)
    if data[at + 16] != 2 or last < 0 or count < 0 or count > last + 1:
        return BAD_BATCH
    if read_number(data, at + 17, 4) & 0xFFFFFFFF != checksum(data, at + _CRC_FROM, at + length):
        return BAD_CRC
    offset = state[OFFSET]
    if offset > _LAST_OFFSET:
        return BAD_OFFSET
    attributes = read_number(data, at + 21, 2) & 0xFFFF
    state[AT], state[OFFSET], state[BASE] = at + length, offset + last + 1, offset
    if attributes & _CONTROL or count == 0 or offset + last < state[FIRST_OFFSET]:
        state[LEFT] = 0
        return DONE
    if attributes & _TRANSACTIONAL and len(aborted) and _is_aborted(aborted, read_number(data, at + 43, 8), offset):
        state[LEFT] = 0
        return DONE
    state[BASE_TIME], state[FIXED_TIME] = read_number(data, at + 27, 8), 0
    if append_ms != -1:
        state[BASE_TIME], state[FIXED_TIME] = append_ms, 1
        attributes |= _APPEND_TIME
    elif attributes & _APPEND_TIME:
        state[BASE_TIME], state[FIXED_TIME] = read_number(data, at + 35, 8), 1
    state[PRODUCER], state[EPOCH] = read_number(data, at + 43, 8), read_number(data, at + 51, 2)
    state[SEQUENCE], state[CODEC] = read_number(data, at + 53, 4), attributes & _CODEC_MASK
    state[ATTRIBUTES] = attributes & ~_CODEC_MASK
    state[POSITION], state[END] = at + _BATCH_HEADER, at + length
    state[LEFT], state[LAST_DELTA], state[DELTA] = count, last, -1
    return OPEN if state[CODEC] else DONE


@compiled
def fill_batches(data: Array, runs: Array, aborted: Array, places: Array, state: Array) -> Number:
    """Copy the batches of runs, which follow each other in `data`, into the columns of a piece, which `places` names.

    A row of `runs` is (end in `data`, offset of the first record, log-append time or -1). A row of `aborted` is
    (producer id, offset of the first record, offset of the marker); rows are sorted.
    """
    while True:
        if state[LEFT] > 0:
            status = _fill(bytes_of(data), longs_of(places), longs_of(state))
            if status != DONE:
                return status
        run = state[RUN]
        if state[AT] == runs[run, 0]:
            run += 1
            if run == len(runs):
                return DONE
            if runs[run, 1] < state[OFFSET]:
                return BAD_OFFSET
            state[RUN], state[OFFSET] = run, runs[run, 1]
            continue
        status = _enter_batch(data, runs[run, 0], runs[run, 2], aborted, state)
        if status != DONE:
            return status
