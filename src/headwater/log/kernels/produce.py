"""One compiled pass over a Produce request: positions of its parts, and the header numbers of each plain batch.

Importing this module imports numba. The general code handles what is unusual: `wire.skim` and kio a request that this
pass declines, `check_batch` a batch that is not plain. So errors are reported in one place only.
"""

from __future__ import annotations

from typing import Any

from headwater.log.kernels import records
from headwater.log.kernels.records import OK
from headwater.native.bytes import Array, read_number
from headwater.native.compiling import compiled

# Row 0 describes the request, ...
ACKS, TIMEOUT_MS, CLIENT_AT, CLIENT_END, ID_AT, ID_END = range(6)
# ... then comes a row for each topic, ...
NAME_AT, NAME_END, PARTITIONS = range(3)
# ... followed by a row for each of its partitions.
INDEX, START, END, PLAIN, CRC, OFFSETS, FIRST_MS, LAST_MS, PRODUCER, EPOCH, SEQUENCE, NULL_KEYS, TRANSACTIONAL = range(
    13
)
COLUMNS = 13

DECLINED = -1
_HEADER_AT = 8
_FLEXIBLE_SINCE = 9
_TOPIC_IDS_SINCE = 13
_UUID_BYTES = 16
_BATCH_HEADER = 61
_LENGTH_OVERHEAD = 12
_MAGIC = 2
_UNUSUAL = 0x07 | 0x08 | 0x20
"""Attributes of a batch that is compressed, has log-append time, or is a control batch."""
_TRANSACTIONAL = 0x10
_FAR = 1 << 61
"""The sum of two numbers below this does not overflow."""

walk_records = compiled(records.walk_records)
_walk: Any = walk_records


@compiled
def _length(frame: Array, at: int, flexible: bool, size: int) -> tuple[int, int]:
    """The length prefix of a string, an array or bytes (-1 if it is null or malformed), and the position after it."""
    end = len(frame)
    if not flexible:
        if at + size > end:
            return -1, at
        return read_number(frame, at, size), at + size
    value = shift = 0
    while at < end and shift < 35:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, at
        shift += 7
    return -1, at


@compiled
def _is_null(frame: Array, at: int, flexible: bool) -> bool:
    """Whether a string of the body is null."""
    if flexible:
        return at < len(frame) and frame[at] == 0
    return at + 2 <= len(frame) and frame[at] == 0xFF and frame[at + 1] == 0xFF


@compiled
def _untagged(frame: Array, at: int, flexible: bool) -> int:
    """The end of an entity without tagged fields; -1 if it has some."""
    if not flexible:
        return at
    if at >= len(frame) or frame[at] != 0:
        return -1
    return at + 1


@compiled
def _read_batch(frame: Array, start: int, end: int, row: Array) -> None:
    """Enter the numbers of a batch, and whether it is plain: valid (without a check of the CRC) and stored as it is.

    Producer, epoch and whether the batch is transactional are entered for every batch of the known format.
    """
    row[PLAIN] = row[TRANSACTIONAL] = 0
    size = end - start
    if size < _BATCH_HEADER or frame[start + 16] != _MAGIC:
        return
    producer, epoch = read_number(frame, start + 43, 8), read_number(frame, start + 51, 2)
    row[PRODUCER], row[EPOCH] = producer, epoch
    if frame[start + 22] & _TRANSACTIONAL:
        row[TRANSACTIONAL] = 1
    count, last_delta = read_number(frame, start + 57, 4), read_number(frame, start + 23, 4)
    if read_number(frame, start + 8, 4) + _LENGTH_OVERHEAD != size or count <= 0 or last_delta != count - 1:
        return
    sequence = read_number(frame, start + 53, 4)
    if frame[start + 22] & _UNUSUAL or (producer >= 0 and (sequence < 0 or epoch < 0)):
        return
    base_ms, max_ms = read_number(frame, start + 27, 8), read_number(frame, start + 35, 8)
    status, smallest, largest, null_keys = _walk(frame, start + _BATCH_HEADER, end, count)
    if status != OK or abs(base_ms) > _FAR or abs(smallest) > _FAR or abs(largest) > _FAR:
        return
    if base_ms + largest != max_ms:
        return
    row[PLAIN] = 1
    row[CRC] = read_number(frame, start + 17, 4) & 0xFFFFFFFF
    row[OFFSETS], row[FIRST_MS], row[LAST_MS] = count, base_ms + smallest, max_ms
    row[SEQUENCE], row[NULL_KEYS] = sequence, null_keys


@compiled
def _read_topic(frame: Array, at: int, version: int, rows: Array, used: int) -> tuple[int, int]:
    """Enter a topic and its partitions; returns the end of the topic (-1 to decline) and the number of used rows."""
    flexible, end = version >= _FLEXIBLE_SINCE, len(frame)
    length = _UUID_BYTES
    if version < _TOPIC_IDS_SINCE:
        length, at = _length(frame, at, flexible, 2)
    if length < 0 or length > end - at or used == len(rows):
        return -1, used
    topic = rows[used]
    topic[NAME_AT], topic[NAME_END] = at, at + length
    partitions, at = _length(frame, at + length, flexible, 4)
    used += 1
    if partitions <= 0 or partitions > len(rows) - used:
        return -1, used
    topic[PARTITIONS] = partitions
    for _ in range(partitions):
        if at + 4 > end:
            return -1, used
        row = rows[used]
        row[INDEX] = read_number(frame, at, 4)
        length, at = _length(frame, at + 4, flexible, 4)
        if length < 0 or length > end - at:
            return -1, used
        row[START], row[END] = at, at + length
        _read_batch(frame, at, at + length, row)
        used += 1
        at = _untagged(frame, at + length, flexible)
        if at < 0:
            return -1, used
    return _untagged(frame, at, flexible), used


@compiled
def read_produce(frame: Array, version: int, rows: Array) -> int:
    """Fill in rows for a whole request, given as a read-only memoryview; returns the used rows, or `DECLINED`."""
    flexible, end = version >= _FLEXIBLE_SINCE, len(frame)
    request = rows[0]
    length, at = _length(frame, _HEADER_AT, False, 2)
    if length < 0 or length > end - at:
        return DECLINED
    request[CLIENT_AT], request[CLIENT_END] = at, at + length
    at = _untagged(frame, at + length, flexible)
    if at < 0:
        return DECLINED
    request[ID_AT] = request[ID_END] = 0
    null = _is_null(frame, at, flexible)
    length, at = _length(frame, at, flexible, 2)
    if not null:
        if length < 0 or length > end - at:
            return DECLINED
        request[ID_AT], request[ID_END] = at, at + length
        at += length
    if at + 6 > end:
        return DECLINED
    request[ACKS], request[TIMEOUT_MS] = read_number(frame, at, 2), read_number(frame, at + 2, 4)
    topics, at = _length(frame, at + 6, flexible, 4)
    if topics <= 0:
        return DECLINED
    used = 1
    for _ in range(topics):
        at, used = _read_topic(frame, at, version, rows, used)
        if at < 0:
            return DECLINED
    at = _untagged(frame, at, flexible)
    return used if at == end else DECLINED
