"""JSON values as Avro data, and back.

Bytes are texts whose characters stand for one byte each, as in Avro's JSON encoding. A value of a union is given as it
is, or as an object whose only member is named as its branch. Dates, times and timestamps are numbers or ISO 8601,
decimals are numbers or texts. A field that is missing has its default value.
"""

from __future__ import annotations

import struct
from typing import Any, NoReturn

from headwater.errors import BadValue
from headwater.schemas.avro.logical import from_json, to_json
from headwater.schemas.avro.model import AvroModel, definitions_of
from headwater.schemas.avro.names import NAMED
from headwater.schemas.steps import Steps
from headwater.schemas.texts import MAX_MESSAGE, step

MAX_STEPS = 1_000_000
"""The most attempts to encode a part of one value by a type, and fields that are looked at. In unions of records a part
is tried with each branch, so the value and the schema set no limit."""

MAX_DEFAULTS = 1 << 20
"""The most bytes that defaults add to one value. A default may be a record whose fields have defaults, and so on."""

MAX_VALUES = 1_000_000
"""The most values in one record that is decoded. Arrays of nulls take no bytes, so the payload sets no limit."""

_BOUNDS = {"int": 1 << 31, "long": 1 << 63}
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_NAMES = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class AvroCodec:
    """Encodes and decodes by one schema."""

    def __init__(self, model: AvroModel) -> None:
        self._tree = model.tree
        self._definitions = definitions_of(model.tree)
        self._known = _Known()

    def encode(self, value: Any) -> bytes:
        """The bytes of a value. Raises `BadValue`, with the place."""
        try:
            return _Encoder(self._definitions, self._known, _Budget()).encode(value, self._tree, "")
        except RecursionError:
            raise BadValue("The value is nested too deeply") from None
        except _TooMuchError as error:
            raise BadValue(str(error)) from None

    def decode(self, data: bytes) -> Any:
        """The value of bytes, as JSON. Raises `BadValue` if they are not of the schema."""
        decoder = _Decoder(self._definitions, data)
        try:
            value = decoder.decode(self._tree)
        except RecursionError:
            raise BadValue("The value is nested too deeply") from None
        if decoder.at != len(data):
            raise BadValue(f"{len(data) - decoder.at} bytes are left after the value")
        return value


def _refuse(place: str, flaw: str) -> NoReturn:
    raise BadValue(f"The value at {place[:MAX_MESSAGE] or 'the top'} {flaw[:MAX_MESSAGE]}")


class _TooMuchError(Exception):
    """A budget is used up. It is no `BadValue`, after which a union tries its next branch."""


class _Known:
    """What a codec has found out about its schema, by the identities of parts of it."""

    def __init__(self) -> None:
        self.defaults: dict[int, bytes | BadValue | _TooMuchError] = {}
        """By field, its default, or why there is none."""
        self.symbols: dict[int, dict[str, int]] = {}
        """By enum, the numbers of its symbols."""


class _Budget:
    """What encoding one value may take."""

    def __init__(self) -> None:
        self.steps = Steps(MAX_STEPS, _TooMuchError(f"The value takes more than {MAX_STEPS} steps by its schema"))
        self.defaults = Steps(MAX_DEFAULTS, _TooMuchError(f"Defaults add more than {MAX_DEFAULTS} bytes to the value"))


class _Encoder:
    """Encodes one value. It remembers what it made of each part, so that trying branches of unions stays cheap."""

    def __init__(self, definitions: dict[str, Any], known: _Known, budget: _Budget, plain: bool = False) -> None:
        self._definitions = definitions
        self._known = known
        self._budget = budget
        self._plain = plain
        """Whether values of logical types are plain ones, as in defaults."""
        self._made: dict[tuple[int, int], bytes | BadValue] = {}

    def encode(self, value: Any, tree: Any, place: str) -> bytes:
        self._budget.steps.take(1 + len(place) // 256)
        tree = self._definitions.get(tree, tree) if isinstance(tree, str) else tree
        if isinstance(tree, str) or not isinstance(value, (dict, list)):
            return self._encode(value, tree, place)
        pair = (id(value), id(tree))
        if pair not in self._made:
            try:
                self._made[pair] = self._encode(value, tree, place)
            except BadValue as flaw:
                self._made[pair] = flaw
        made = self._made[pair]
        if isinstance(made, BadValue):
            raise made
        return made

    def _encode(self, value: Any, tree: Any, place: str) -> bytes:
        if isinstance(tree, list):
            return self._union(value, tree, place)
        kind = tree if isinstance(tree, str) else tree["type"]
        if isinstance(tree, dict) and "logicalType" in tree and not self._plain:
            value = from_json(value, tree, place)
        if kind in ("record", "error"):
            return self._record(value, tree, place)
        if kind == "array":
            if not isinstance(value, list):
                _refuse(place, "is no list")
            return _blocks([self.encode(one, tree["items"], step(place, at)) for at, one in enumerate(value)])
        if kind == "map":
            if not isinstance(value, dict):
                _refuse(place, "is no object")
            pairs = (
                (_text(name, place), self.encode(one, tree["values"], step(place, name))) for name, one in value.items()
            )
            return _blocks([name + one for name, one in pairs])
        if kind == "enum":
            number = self._symbols(tree).get(value) if isinstance(value, str) else None
            if number is None:
                _refuse(place, f"is none of the symbols of the enum {tree['name']}")
            return varint(number)
        if kind == "fixed":
            data = _bytes(value, place)
            if len(data) != tree["size"]:
                _refuse(place, f"has {len(data)} bytes, not {tree['size']}")
            return data
        return _primitive(value, kind, place)

    def _record(self, value: Any, tree: dict[str, Any], place: str) -> bytes:
        if not isinstance(value, dict):
            _refuse(place, f"is no object, as the record {tree['name']} is")
        self._budget.steps.take(len(tree["fields"]))
        names = {field["name"] for field in tree["fields"]}
        for name in value:
            if name not in names:
                _refuse(step(place, name), f"is no field of the record {tree['name']}")
        parts: list[bytes] = []
        for field in tree["fields"]:
            here = step(place, field["name"])
            if field["name"] in value:
                parts.append(self.encode(value[field["name"]], field["type"], here))
            elif "default" in field:
                parts.append(self._default(field, here))
                self._budget.defaults.take(len(parts[-1]))
            else:
                _refuse(here, "is missing, and has no default")
        return b"".join(parts)

    def _default(self, field: dict[str, Any], place: str) -> bytes:
        """The default of a field, which is encoded once: that of a record has those of its fields in it."""
        made = self._known.defaults.get(id(field))
        if made is None:
            alone = _Encoder(self._definitions, self._known, _Budget(), plain=True)
            try:
                made = alone.encode(field["default"], field["type"], place)
            except (BadValue, _TooMuchError) as flaw:
                made = flaw
            self._known.defaults[id(field)] = made
        if not isinstance(made, bytes):
            raise made
        return made

    def _symbols(self, tree: dict[str, Any]) -> dict[str, int]:
        found = self._known.symbols.get(id(tree))
        if found is None:
            found = self._known.symbols[id(tree)] = {one: at for at, one in enumerate(tree["symbols"])}
        return found

    def _union(self, value: Any, branches: list[Any], place: str) -> bytes:
        near: list[str] = []
        """Flaws of branches that the value may have been meant for."""
        tag = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else None
        for at, branch in enumerate(branches):
            if tag is not None and tag == _branch(branch):
                try:
                    return varint(at) + self.encode(value[tag], branch, step(place, tag))
                except BadValue as flaw:
                    near.append(str(flaw))
        for at, branch in enumerate(branches):
            try:
                return varint(at) + self.encode(value, branch, place)
            except BadValue as flaw:
                if _branch(branch) != "null" and tag != _branch(branch):
                    near.append(str(flaw))
        names = ", ".join(_branch(branch) for branch in branches)
        why = f": {near[0]}" if len(near) == 1 else ""
        _refuse(place, f"is of no branch of the union [{names}]{why}")


class _Decoder:
    """Reads one value from bytes."""

    def __init__(self, definitions: dict[str, Any], data: bytes) -> None:
        self._definitions = definitions
        self._data = data
        self._left = MAX_VALUES
        self.at = 0

    def decode(self, tree: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise BadValue(f"The value has more than {MAX_VALUES} parts")
        if isinstance(tree, list):
            branch = self._long()
            if not 0 <= branch < len(tree):
                raise BadValue(f"The union has no branch {branch}")
            return self.decode(tree[branch])
        tree = self._definitions.get(tree, tree) if isinstance(tree, str) else tree
        value = self._plain(tree if isinstance(tree, str) else tree["type"], tree)
        return to_json(value, tree) if isinstance(tree, dict) and "logicalType" in tree else value

    def _plain(self, kind: str, tree: Any) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            byte = self._take(1)[0]
            if byte > 1:
                raise BadValue(f"A boolean is the byte {byte}")
            return byte == 1
        if kind in _BOUNDS:
            number = self._long()
            if not -_BOUNDS[kind] <= number < _BOUNDS[kind]:
                raise BadValue(f"{number} is no {kind}")
            return number
        if kind in _FLOATS:
            number = _FLOATS[kind].unpack(self._take(_FLOATS[kind].size))[0]
            return number if number - number == 0 else str(number).replace("nan", "NaN").replace("inf", "Infinity")
        if kind == "bytes":
            return self._take(self._long()).decode("latin-1")
        if kind == "string":
            return self._text()
        if kind == "fixed":
            return self._take(tree["size"]).decode("latin-1")
        if kind == "enum":
            symbol = self._long()
            if not 0 <= symbol < len(tree["symbols"]):
                raise BadValue(f"The enum {tree['name']} has no symbol {symbol}")
            return tree["symbols"][symbol]
        if kind == "array":
            return [self.decode(tree["items"]) for _ in self._items()]
        if kind == "map":
            return {self._text(): self.decode(tree["values"]) for _ in self._items()}
        return {field["name"]: self.decode(field["type"]) for field in tree["fields"]}

    def _items(self) -> Any:
        """One turn for every item of the blocks of an array or a map."""
        while True:
            count = self._long()
            if count == 0:
                return
            if count < 0:
                count = -count
                self._long()
            yield from range(min(count, MAX_VALUES + 1))

    def _text(self) -> str:
        try:
            return self._take(self._long()).decode()
        except UnicodeDecodeError:
            raise BadValue("A string is not UTF-8") from None

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self.at:
            raise BadValue(f"The value ends early: {length} bytes at {self.at}, of {len(self._data)}")
        self.at += length
        return self._data[self.at - length : self.at]

    def _long(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise BadValue("A number has more than ten bytes")


def varint(number: int) -> bytes:
    """An integer of up to 64 bits as Avro and Protobuf write signed ones: zigzag, seven bits a byte."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _branch(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    name: str = tree["name"] if tree["type"] in NAMED else tree["type"]
    return name


def _blocks(items: list[bytes]) -> bytes:
    return varint(len(items)) + b"".join(items) + b"\0" if items else b"\0"


def _text(value: Any, place: str) -> bytes:
    if not isinstance(value, str):
        _refuse(place, "is no string")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        _refuse(place, "has half of a surrogate pair")
    return varint(len(data)) + data


def _bytes(value: Any, place: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        _refuse(place, "is no string that stands for bytes")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        _refuse(place, "has a character above \\u00ff, which stands for no byte")


def _primitive(value: Any, kind: str, place: str) -> bytes:
    if kind == "null":
        if value is not None:
            _refuse(place, "is not null")
        return b""
    if kind == "boolean":
        if not isinstance(value, bool):
            _refuse(place, "is no boolean")
        return b"\1" if value else b"\0"
    if kind in _BOUNDS:
        if not isinstance(value, int) or isinstance(value, bool):
            _refuse(place, "is no integer")
        if not -_BOUNDS[kind] <= value < _BOUNDS[kind]:
            _refuse(place, f"is out of the range of {kind}")
        return varint(value)
    if kind in _FLOATS:
        number = _NAMES.get(value, value) if isinstance(value, str) else value
        if not isinstance(number, (int, float)) or isinstance(number, bool):
            _refuse(place, "is no number")
        try:
            return _FLOATS[kind].pack(number)
        except (OverflowError, struct.error):
            _refuse(place, f"is out of the range of {kind}")
    if kind == "bytes":
        data = _bytes(value, place)
        return varint(len(data)) + data
    return _text(value, place)
