"""Values as they were in payloads become values of a shape, a whole array at a time."""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.schemas.shapes import Shape

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.schemas.decoding.slots import Bad, Convert

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_CLOCK = r"(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?"
_TIME = re.compile(_CLOCK + r"(?:[zZ])?")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ]" + _CLOCK + r"(?:([zZ])|([+-])(\d{2}):?(\d{2}))?")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_HYPHENS = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DAY, _SECOND = 86_400_000_000, 1_000_000


def float32(array: pa.Array) -> tuple[pa.Array, Bad]:
    """Doubles become floats. One that is too large for a float is a flaw; digits that a float lacks are not."""
    import pyarrow as pa

    values = array.fill_null(0).to_numpy()
    with np.errstate(over="ignore"):
        short = values.astype(np.float32)
    bad = {int(at): "the number is too large for 32 bits" for at in np.flatnonzero(np.isinf(short) & ~np.isinf(values))}
    return pa.array(short, pa.float32(), mask=_nulls(array)), bad


def decimal(precision: int, scale: int, array: pa.Array) -> tuple[pa.Array, Bad]:
    """Numbers as text become decimals."""
    import decimal as decimals

    import pyarrow as pa

    kind = pa.decimal128(precision, scale)

    def one(text: str) -> decimals.Decimal:
        value = decimals.Decimal(text)
        _sign, figures, exponent = value.as_tuple()
        if not isinstance(exponent, int) or len(figures) + exponent > precision - scale + 1 or exponent < -1000:
            raise ValueError(f"the number does not fit {kind}")
        return value

    return each(array, kind, one, f"the number does not fit {kind}")


def scaled(factor: int, divisor: int, kind: str) -> Convert:
    """Whole numbers become times of another unit: multiplied, or divided and rounded down."""

    def convert(array: pa.Array) -> tuple[pa.Array, Bad]:
        from headwater.schemas.conform import arrow_type

        values = array.to_numpy(zero_copy_only=False) if not array.null_count else array.fill_null(0).to_numpy()
        limit = ((1 << 63) - 1) // factor
        low, high = (0, _DAY * divisor // factor - 1) if kind == "time" else (-limit, limit)
        bad: Bad = {}
        if len(values) and (values.max() > high or values.min() < low):
            bad = {int(at): "the time is out of range" for at in np.flatnonzero((values > high) | (values < low))}
        times = values
        with np.errstate(over="ignore"):
            if factor != 1:
                times = times * factor
            if divisor != 1:
                times = times // divisor
        return _typed(times, arrow_type(Shape(kind)), array), bad

    return convert


def symbols(names: tuple[str, ...], array: pa.Array) -> tuple[pa.Array, Bad]:
    """Numbers of an enum's symbols become their names."""
    import pyarrow as pa

    return pa.array(names, pa.string()).take(array), {}


def decimal_bytes(precision: int, scale: int, array: pa.Array) -> tuple[pa.Array, Bad]:
    """Big-endian numbers become decimals."""
    import pyarrow as pa

    from headwater.schemas.decoding.kernels.avro import read_decimals

    kind = pa.decimal128(precision, scale)
    valid, ends, data = array.buffers()
    borders = np.frombuffer(ends, np.int32, len(array) + 1)
    room = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    out, flags = np.zeros(2 * len(array), np.int64), np.zeros(len(array), np.bool_)
    limit = 10**precision
    read_decimals(room, borders, np.uint64(limit >> 64), np.uint64(limit & (1 << 64) - 1), out, flags)
    bad = {int(at): f"the number does not fit {kind}" for at in np.flatnonzero(flags)}
    return pa.Array.from_buffers(kind, len(array), [valid, pa.py_buffer(out)], array.null_count), bad


def uuid_bytes(array: pa.Array) -> tuple[pa.Array, Bad]:
    """Sixteen bytes become the text of a UUID."""
    import pyarrow as pa

    texts = [None if value is None else value.hex() for value in array.to_pylist()]
    return pa.array([text and _hyphened(text) for text in texts], pa.string()), {}


def json_text(value: Any, *, sort: bool = False) -> str:
    """A value that a library has read, as JSON text. See `schemas/leftovers.py` for what becomes a string.

    `sort` gives names in order: for libraries whose maps have none, so that the same bytes give the same text.
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=sort)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime.datetime):
        text = value.isoformat()
        return text.removesuffix("+00:00") + "Z" if value.tzinfo is not None else text
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _typed(values: Any, kind: pa.DataType, array: pa.Array) -> pa.Array:
    """Numbers of numpy as an Arrow array, with the nulls of another one."""
    import pyarrow as pa

    bits = None
    if array.null_count:
        bits = pa.py_buffer(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)], array.null_count)


def _nulls(array: pa.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def each(array: pa.Array, kind: pa.DataType, one: Callable[[Any], Any], flaw: str = "") -> tuple[pa.Array, Bad]:
    """Convert values one by one. Errors of `one` are flaws; `flaw` is their text if it is given."""
    import pyarrow as pa

    values: list[Any] = [None] * len(array)
    bad: Bad = {}
    for at in _valid(array):
        try:
            values[at] = pa.scalar(one(array[at].as_py()), kind).as_py()
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            bad[at] = flaw or str(error) or "the value cannot be read"
    return pa.array(values, kind), bad


def _valid(array: pa.Array) -> list[int]:
    """The indexes of values that are not null."""
    if array.null_count == len(array):
        return []
    indexes: list[int] = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)).tolist()
    return indexes


def _whole(kind: str, one: Callable[[str], int], flaw: str, array: pa.Array) -> tuple[pa.Array, Bad]:
    """Texts become whole numbers of a type that Arrow keeps as such."""
    from headwater.schemas.conform import arrow_type

    bad: Bad = {}
    values = np.zeros(len(array), np.int32 if kind == "date" else np.int64)
    for at in _valid(array):
        try:
            values[at] = one(array[at].as_py())
        except (ValueError, OverflowError):
            bad[at] = flaw
    return _typed(values, arrow_type(Shape(kind)), array), bad


def _days(text: str) -> int:
    if _DATE.fullmatch(text) is None:
        raise ValueError(text)
    return int(np.datetime64(text, "D").astype(np.int64))


def _micros(hours: str, minutes: str, seconds: str, fraction: str | None) -> int:
    if int(hours) > 23 or int(minutes) > 59 or int(seconds) > 59:
        raise ValueError(hours)
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * _SECOND + int((fraction or "").ljust(6, "0")[:6])


def _time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return _micros(*found.groups())


def _moment(zone: bool, text: str) -> int:
    found = _MOMENT.fullmatch(text)
    if found is None or (found[6] is None and found[7] is None) == zone:
        raise ValueError(text)
    value = _days(found[1]) * _DAY + _micros(found[2], found[3], found[4], found[5])
    if found[7] is not None:
        away = (int(found[8]) * 60 + int(found[9])) * 60 * _SECOND
        value += away if found[7] == "-" else -away
    return value


def _uuid(array: pa.Array) -> tuple[pa.Array, Bad]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.all(pc.match_substring_regex(array, f"^{_HYPHENS}$")).as_py() in (None, True):
        return pc.ascii_lower(array), {}
    found = array.to_pylist()
    bad = {at: "the text is no UUID" for at, text in enumerate(found) if text is not None and not _UUID.fullmatch(text)}
    texts = [text and ("" if at in bad else _hyphened(text.replace("-", "").lower())) for at, text in enumerate(found)]
    return pa.array(texts, pa.string()), bad


def _hyphened(text: str) -> str:
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _base64(array: pa.Array) -> tuple[pa.Array, Bad]:
    import pyarrow as pa

    return each(array, pa.binary(), lambda text: base64.b64decode(text, validate=True), "the text is no base64")


FROM_TEXT: dict[str, Convert] = {
    "date": partial(_whole, "date", _days, "the text is no date"),
    "time": partial(_whole, "time", _time, "the text is no time of day"),
    "timestamp": partial(_whole, "timestamp", partial(_moment, False), "the text is no date and time"),
    "timestamptz": partial(_whole, "timestamptz", partial(_moment, True), "the text is no date and time with a zone"),
    "uuid": _uuid,
    "binary": _base64,
}
"""By kind of shape, how a text becomes a value."""
