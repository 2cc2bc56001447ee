"""Typed columns of rows: schemas are found, payloads decoded, and values put into the columns of the table.

Nothing is asked and nothing is stored here. If schemas or columns are missing, that is the result, and the rows are
tried again when they are there. A row that cannot be decoded has a null and a failure; it stops nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import BadSchema
from headwater.schemas.codecs import Codec, codec_of, shape_in
from headwater.schemas.columns import KEY, VALUE, merged, root_of
from headwater.schemas.conform import arrow_fields, conform, root_array
from headwater.schemas.framing import (
    KEY_HEADER,
    VALUE_HEADER,
    Frame,
    Frames,
    MessageFrame,
    SchemaRef,
    frames_of,
    message_frames,
    unframed,
)
from headwater.schemas.parsing import SchemaKind
from headwater.schemas.plans import Plan, plan
from headwater.schemas.shapes import Shape
from headwater.schemas.typing import JSON, MAX_UNKNOWN, NO_SCHEMA, SUBJECT, Failure, KnownSchema, Typing, Wants

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from headwater.schemas.decoding.decoded import Decoded
    from headwater.schemas.decoding.json_plain import Shapes

    Array = npt.NDArray[Any]

MAX_PLANS = 1_000
"""Plans that a typer keeps, for the shapes of keys and values that come together."""


class Rows(Protocol):
    """Rows of a segment: its columns by name."""

    @property
    def num_rows(self) -> int: ...

    def column(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Typed:
    """The typed columns of some rows."""

    arrays: list[pa.Array]
    """In the order of the table's columns."""
    failures: dict[int, Failure]
    """By row, rising."""
    complete: bool
    """Whether all rows were decoded or failed. Otherwise some wait for a registry."""


@dataclass(slots=True)
class _Group:
    """Decoded values of one type."""

    shape: Shape
    record: str
    array: pa.Array


@dataclass(slots=True)
class _Side:
    """Decoded keys, or values."""

    groups: list[_Group] = field(default_factory=list)
    group: Array | None = None
    """By row, which group it is in. A row in none is a null of the first one."""
    place: Array | None = None
    """By row, its place in the array of the group; -1 for a null."""
    failures: dict[int, Failure] = field(default_factory=dict)
    complete: bool = True


class Typer:
    """Makes the typed columns of rows, batch by batch, and gathers what is missing."""

    def __init__(self, typing: Typing, *, tells_cut_off: bool = False) -> None:
        """`tells_cut_off`: a row whose schema the registry did not give counts as a failure, and does not wait."""
        self._typing = typing
        self._tells_cut_off = tells_cut_off
        self._schemas = {name: schema for schema in typing.schemas for name in schema.names}
        self._absent = frozenset(typing.absent)
        self._unknown: dict[str, None] = {}
        self._roots: dict[Shape, None] = {}
        self._plans: dict[tuple[object, ...], Plan | None] = {}
        self._json: dict[str, Shapes] = {}

    def __repr__(self) -> str:
        return f"<Typer of columns {self._typing.version}, {len(self._schemas)} schemas, {self.wants!r}>"

    @property
    def wants(self) -> Wants:
        """What was missing so far."""
        return Wants(tuple(self._unknown), tuple(self._roots))

    def fields(self) -> list[pa.Field]:
        """The fields of the typed columns."""
        return arrow_fields(self._typing.columns)

    def typed(self, rows: Rows) -> Typed | None:
        """The typed columns of rows; None if something is missing, now or before."""
        typing = self._typing
        if typing.refused:
            return self._refused(rows, typing.refused)
        headers = rows.column("headers")
        key = self._side(typing.key, rows.column("key"), headers, KEY)
        value = self._side(typing.value, rows.column("value"), headers, VALUE)
        if key is None or value is None:
            return None
        failures = _joined(key.failures, value.failures)
        parts = self._parts(key, value, failures, rows.num_rows)
        if parts is None or self.wants:
            return None
        return Typed(parts, failures, key.complete and value.complete)

    def _refused(self, rows: Rows, reason: str) -> Typed | None:
        """Rows of which none is decoded."""
        failures: dict[int, Failure] = {}
        for source, column in ((self._typing.key, KEY), (self._typing.value, VALUE)):
            payloads = rows.column("key" if column == KEY else "value")
            if source != NO_SCHEMA:
                filled = payloads.is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist()
                failures.update(dict.fromkeys(filled, Failure("not-decoded", reason)))
        failures = dict(sorted(failures.items()))
        parts = self._parts(_Side(), _Side(), failures, rows.num_rows)
        return Typed(parts, failures, complete=True) if parts is not None and not self.wants else None

    # --- decoding ----------------------------------------------------------------------------------------

    def _side(self, source: str, payloads: pa.Array, headers: pa.Array, column: str) -> _Side | None:
        """Decode the keys or the values, for `key_data` or `value_data`. None if their schemas are not known."""
        import numpy as np

        side = _Side()
        if source == NO_SCHEMA or payloads.null_count == len(payloads):
            return side
        if source == JSON:
            found = unframed(payloads)
        else:
            found = frames_of(payloads, headers, KEY_HEADER if column == KEY else VALUE_HEADER)
        for row, text in found.errors.items():
            side.failures[row] = Failure("no-schema", text)
        if source.startswith(SUBJECT):
            found = self._pinned(found, payloads)
        side.group = np.zeros(len(payloads), dtype=np.int32)
        side.place = np.full(len(payloads), -1, dtype=np.int64)
        known = True
        for frame in found.frames:
            if source == JSON:
                self._decode_json(side, column, frame)
            else:
                known = self._frame(side, frame, source) and known
        return side if known else None

    def _decode_json(self, side: _Side, column: str, frame: Frame) -> None:
        """Decode JSON without a schema: shapes are found in the values, and begin with the columns of the table."""
        from headwater.schemas.decoding.json_plain import Shapes

        if column not in self._json:
            self._json[column] = Shapes(shape_in(self._typing.columns, column))
        for part in self._json[column].decode(frame.payloads):
            rows = frame.rows if part.rows is None else frame.rows[part.rows]
            self._enter(side, rows, part.shape, "", part.decoded)

    def _pinned(self, found: Frames, payloads: pa.Array) -> Frames:
        """Rows without an id have the schema of the subject. So do those whose prefix is no id of the registry."""
        import numpy as np

        own = [one for one in found.frames if not one.schema.key or (one.prefix and one.schema.key in self._absent)]
        if not own:
            return found
        rows = np.sort(np.concatenate([one.rows for one in own]))
        others = [one for one in found.frames if all(one is not other for other in own)]
        return Frames([*others, Frame(SchemaRef(), rows, payloads)], found.errors)

    def _frame(self, side: _Side, frame: Frame, source: str) -> bool:
        """Decode the rows of a frame. Returns whether their schema is known."""
        name = frame.schema.key or (source if source.startswith(SUBJECT) else "")
        known = self._schemas.get(name)
        if known is not None:
            self._by_schema(side, known, frame, name)
        elif not name:
            self._fail(side, frame, "no-schema", "neither a prefix nor a header names a schema")
        elif name in self._absent:
            self._fail(side, frame, "unknown-schema", f"the registry has no schema with the {_called(frame, name)}")
        elif self._typing.cut_off and self._tells_cut_off:
            self._fail(
                side, frame, "no-answer", f"the registry did not give the schema with the {_called(frame, name)}"
            )
        elif self._typing.cut_off:
            side.complete = False
        elif len(self._unknown) < MAX_UNKNOWN:
            self._unknown[name] = None
            return False
        else:
            return False
        return True

    def _by_schema(self, side: _Side, known: KnownSchema, frame: Frame, name: str) -> None:
        """Decode the rows of a frame by their schema."""
        payloads = frame.whole
        try:
            if known.kind != SchemaKind.PROTOBUF or not frame.schema.key:
                self._decode(side, codec_of(known, ()), frame.rows, payloads, frame.prefix)
                return
            messages, errors = message_frames(payloads, frame.prefix)
            for place, text in errors.items():
                side.failures[int(frame.rows[place])] = Failure("bad-data", text)
            for message in messages:
                self._message(side, known, message, frame.rows[message.rows])
        except BadSchema as error:
            self._fail(side, frame, "bad-schema", f"the schema with the {_called(frame, name)} cannot be used: {error}")

    def _message(self, side: _Side, known: KnownSchema, message: MessageFrame, rows: Array) -> None:
        """Decode Protobuf messages of one type."""
        try:
            codec = codec_of(known, message.indexes)
        except BadSchema as error:
            side.failures.update(dict.fromkeys(rows.tolist(), Failure("bad-data", str(error))))
            return
        self._decode(side, codec, rows, message.whole, message.front)

    def _decode(self, side: _Side, codec: Codec, rows: Array, payloads: pa.Array, front: int) -> None:
        shape, decoded = codec.decode(payloads, front)
        self._enter(side, rows, shape, codec.record if self._typing.separate else "", decoded)

    def _enter(self, side: _Side, rows: Array, shape: Shape, record: str, decoded: Decoded) -> None:
        """Note the values of some rows."""
        import numpy as np

        assert side.group is not None
        assert side.place is not None
        side.group[rows] = len(side.groups)
        side.place[rows] = np.arange(len(rows), dtype=np.int64)
        side.groups.append(_Group(shape, record, decoded.array))
        for place, text in decoded.errors.items():
            side.failures[int(rows[place])] = Failure("bad-data", text)

    def _fail(self, side: _Side, frame: Frame, kind: str, text: str) -> None:
        side.failures.update(dict.fromkeys(frame.rows.tolist(), Failure(kind, text)))

    # --- columns -------------------------------------------------------------------------------------------

    def _parts(self, key: _Side, value: _Side, failures: dict[int, Failure], rows: int) -> list[pa.Array] | None:
        """The columns of all rows. None if the table lacks columns; `wants` then has the shapes."""
        import numpy as np
        import pyarrow as pa

        pairs = _pairs(key, value, rows)
        parts, order = [], []
        for at_key, at_value, chosen in pairs:
            keys, values = _values(key, at_key, chosen), _values(value, at_value, chosen)
            chosen_plan = self._plan(keys, values)
            if chosen_plan is None or self._roots:
                continue
            record = values.record if values is not None else ""
            root = root_array(
                keys.array if keys is not None else None,
                values.array if values is not None else None,
                _errors(failures, chosen, rows),
                flatten=self._typing.flatten,
                record=record,
            )
            parts.append(conform(root, chosen_plan))
            order.append(chosen)
        if self._roots:
            return None
        if len(parts) == 1:
            return parts[0]
        back = pa.array(np.argsort(np.concatenate([_numbers(one, rows) for one in order]), kind="stable"))
        fields = self.fields()
        return [pa.concat_arrays([part[i].cast(one.type) for part in parts]).take(back) for i, one in enumerate(fields)]

    def _plan(self, keys: _Group | None, values: _Group | None) -> Plan | None:
        """How these values become columns; None if the table lacks some."""
        typing = self._typing
        record = values.record if values is not None else ""
        key = (keys.shape if keys is not None else None, values.shape if values is not None else None, record)
        if key not in self._plans:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            root = root_of(key[0], key[1], flatten=typing.flatten, record=record)
            columns, _ = merged(typing.columns, typing.last_id, root)
            if columns is not typing.columns:
                self._roots[root] = None
            self._plans[key] = plan(typing.columns, root) if columns is typing.columns else None
        return self._plans[key]


def _called(frame: Frame, name: str) -> str:
    return str(frame.schema) if frame.schema.key else name.replace(":", " ", 1)


def _joined(keys: dict[int, Failure], values: dict[int, Failure]) -> dict[int, Failure]:
    """The failures of rows, with the word whether a key or a value is meant."""
    found: dict[int, Failure] = {}
    for row in sorted({*keys, *values}):
        told = [(word, one[row]) for word, one in (("key", keys), ("value", values)) if row in one]
        found[row] = Failure(told[-1][1].kind, "; ".join(f"{word}: {failure.text}" for word, failure in told))
    return found


def _pairs(key: _Side, value: _Side, rows: int) -> list[tuple[int, int, Array | None]]:
    """The combinations of groups of keys and groups of values that rows have: (group, group, rows or None for all)."""
    import numpy as np

    if len(key.groups) <= 1 and len(value.groups) <= 1:
        return [(0, 0, None)]
    zero = np.zeros(rows, dtype=np.int64)
    of_key = zero if key.group is None or len(key.groups) <= 1 else key.group.astype(np.int64)
    of_value = zero if value.group is None or len(value.groups) <= 1 else value.group.astype(np.int64)
    codes = of_key * (len(value.groups) + 1) + of_value
    order = np.argsort(codes, kind="stable")
    chosen = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    return [(int(of_key[one[0]]), int(of_value[one[0]]), one) for one in chosen]


def _values(side: _Side, number: int, rows: Array | None) -> _Group | None:
    """The values of some rows, of one group; None if there are no groups."""
    import pyarrow as pa

    if not side.groups or side.place is None:
        return None
    group = side.groups[number]
    places = side.place if rows is None else side.place[rows]
    if rows is None and len(group.array) == len(places):
        return group  # every row has a payload, and they are in order
    taken = group.array.take(pa.array(places, mask=places < 0))
    return _Group(group.shape, group.record, taken)


def _errors(failures: dict[int, Failure], chosen: Array | None, rows: int) -> pa.Array | None:
    """The texts of failures for some rows; None if there are no failures at all."""
    import numpy as np
    import pyarrow as pa

    count = rows if chosen is None else len(chosen)
    if not failures:
        return pa.nulls(count, pa.string())
    which = np.full(rows, -1, dtype=np.int64)
    which[list(failures)] = np.arange(len(failures))
    picked = which if chosen is None else which[chosen]
    texts = pa.array([f"{failure.kind}: {failure.text}" for failure in failures.values()], pa.string())
    return texts.take(pa.array(picked, mask=picked < 0))


def _numbers(chosen: Array | None, rows: int) -> Array:
    import numpy as np

    return np.arange(rows, dtype=np.int64) if chosen is None else chosen
