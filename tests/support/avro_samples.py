"""Random Avro schemas, values of them, and the bytes of values, written without any library."""

from __future__ import annotations

import datetime
import random
import struct
from decimal import Decimal
from typing import Any

Sample = tuple[bytes, Any]
"""A value as Avro writes it, and as its shape has it."""

_DAY = datetime.date(1970, 1, 1)
_ZONED = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL = datetime.datetime(1970, 1, 1)
_UNITS = {"millis": 1_000, "micros": 1}


def varint(number: int) -> bytes:
    """A number as Avro writes ints and longs."""
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


class Samples:
    """Makes schemas and values from a seed."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self._names = 0

    def record(self, depth: int = 0) -> dict[str, Any]:
        """A record type."""
        fields = [{"name": f"f{at}", "type": self.type(depth + 1)} for at in range(self.source.randint(1, 5))]
        return {"type": "record", "name": self._name(), "fields": fields}

    def type(self, depth: int) -> Any:
        """Any type."""
        pick = self.source.randrange(28 if depth < 4 else 22)
        if pick < 8:
            return ["boolean", "int", "long", "float", "double", "bytes", "string", "null"][pick]
        if pick < 14:
            logical = ["date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros"]
            logical += ["local-timestamp-millis"]
            name = logical[pick - 8]
            return {"type": "int" if name in ("date", "time-millis") else "long", "logicalType": name}
        if pick == 14:
            return {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"]}
        if pick == 15:
            return {"type": "fixed", "name": self._name(), "size": self.source.randint(0, 5)}
        if pick == 16:
            return {"type": "bytes", "logicalType": "decimal", "precision": self.source.choice([3, 18, 38]), "scale": 2}
        if pick == 17:
            kind = {"type": "fixed", "name": self._name(), "size": 9}
            return {**kind, "logicalType": "decimal", "precision": 20, "scale": 0}
        if pick == 18:
            return {"type": "string", "logicalType": "uuid"}
        if pick < 22:
            return self._optional(depth)
        if pick < 24:
            return {"type": "array", "items": self.type(depth + 1)}
        if pick == 24:
            return {"type": "map", "values": self.type(depth + 1)}
        return self.record(depth) if pick < 27 else ["null", "int", "string", self.record(depth)]

    def _optional(self, depth: int) -> Any:
        inner = self.type(depth + 1)
        if inner == "null" or isinstance(inner, list):
            return inner
        return ["null", inner] if self.source.random() < 0.7 else [inner, "null"]

    def _name(self) -> str:
        self._names += 1
        return f"T{self._names}"

    def value(self, tree: Any) -> Sample:
        """A value of a type."""
        if isinstance(tree, list):
            branch = self.source.randrange(len(tree))
            data, value = self.value(tree[branch])
            real = [one for one in tree if one != "null"]
            if len(real) > 1 and tree[branch] != "null":
                names = [one if isinstance(one, str) else one["name"] for one in real]
                mine = names[real.index(tree[branch])]
                value = {name: value if name == mine else None for name in names}
            return varint(branch) + data, value
        kind = tree if isinstance(tree, str) else tree["type"]
        logical = "" if isinstance(tree, str) else tree.get("logicalType", "")
        if kind == "record":
            parts = [(field["name"], self.value(field["type"])) for field in tree["fields"]]
            return b"".join(data for _, (data, _) in parts), {name: value for name, (_, value) in parts}
        if kind in ("array", "map"):
            return self._blocks(kind, tree)
        if logical:
            return self._logical(kind, logical, tree)
        return self._plain(kind, tree)

    def _blocks(self, kind: str, tree: Any) -> Sample:
        source = self.source
        data, found = b"", []
        for _ in range(source.choice([0, 0, 1, 1, 2])):
            elements = []
            for _ in range(source.randint(1, 3)):
                inner, value = self.value(tree["items" if kind == "array" else "values"])
                if kind == "map":
                    key = f"k{len(found)}é"
                    inner = varint(len(key.encode())) + key.encode() + inner
                    value = (key, value)
                elements.append(inner)
                found.append(value)
            body = b"".join(elements)
            sized = source.random() < 0.3
            data += varint(-len(elements)) + varint(len(body)) if sized else varint(len(elements))
            data += body
        return data + b"\0", found

    def _logical(self, kind: str, logical: str, tree: Any) -> Sample:
        source = self.source
        if logical == "decimal":
            high = 10 ** tree["precision"] - 1
            number = source.choice([0, 1, -1, 127, -128, 128, high, -high, source.randint(-high, high)])
            size = tree.get("size") or number.bit_length() // 8 + 1
            data = number.to_bytes(size, "big", signed=True)
            sign, digits, _ = Decimal(number).as_tuple()
            return (data if kind == "fixed" else varint(size) + data), Decimal((sign, digits, -tree["scale"]))
        if logical == "uuid":
            text = "8c1d0d9e-1e0a-4b3c-9a53-7ab2d0f9e4aa"
            given = text.upper() if source.random() < 0.5 else text
            return varint(36) + given.encode(), text
        if logical == "date":
            days = source.randint(-100_000, 100_000)
            return varint(days), _DAY + datetime.timedelta(days=days)
        factor = _UNITS[logical.rpartition("-")[2]]
        if logical.startswith("time-"):
            number = source.randrange(86_400_000_000 // factor)
            return varint(number), (_LOCAL + datetime.timedelta(microseconds=number * factor)).time()
        number = source.randint(-(10**15), 10**15) // factor
        start = _ZONED if logical.startswith("timestamp") else _LOCAL
        return varint(number), start + datetime.timedelta(microseconds=number * factor)

    def _plain(self, kind: str, tree: Any) -> Sample:
        source = self.source
        if kind == "null":
            return b"", None
        if kind == "boolean":
            return source.choice([(b"\1", True), (b"\0", False)])
        if kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            number = source.choice([0, -1, 1, 2**bits - 1, -(2**bits), source.randint(-(2**bits), 2**bits - 1)])
            return varint(number), number
        if kind == "float":
            data = struct.pack("<f", source.uniform(-1e9, 1e9))
            return data, struct.unpack("<f", data)[0]
        if kind == "double":
            real = source.choice([0.0, float("inf"), source.uniform(-1e300, 1e300)])
            return struct.pack("<d", real), real
        if kind == "enum":
            place = source.randrange(len(tree["symbols"]))
            return varint(place), tree["symbols"][place]
        if kind == "fixed":
            data = source.randbytes(tree["size"])
            return data, data
        text = source.choice(["", "a", "é€😀", "x" * 70])
        data = text.encode() if kind == "string" else source.randbytes(source.randint(0, 9))
        return varint(len(data)) + data, text if kind == "string" else data
