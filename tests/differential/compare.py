"""Answers as plain values in which everything that a server makes up is a symbol, and where two of them differ."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from crc32c import crc32c

from tests.differential.allowed import ALLOWED, Rule
from tests.differential.peer import Silence
from tests.differential.story import Outcome, Transcript

MADE_UP = frozenset({"member_id", "leader", "topic_id", "producer_id", "session_id"})
"""Fields whose values a server invents: they are compared by which of them are the same."""
IDENTITY = (
    "name", "topic", "key", "group_id", "resource_type", "resource_name", "group_instance_id", "instance_id",
    "transactional_id",
    "partition_index", "index", "partition", "api_key",
)  # fmt: skip
"""Fields that tell the items of an array apart."""
OURS = "headwater."
"""How the names of configs begin that Apache Kafka does not have."""
OFFSETS = "__consumer_offsets"
"""Where Apache Kafka keeps committed offsets. A transaction that commits some has partitions of it."""
_NOTHING = ("", None, -1, str(uuid.UUID(int=0)))
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])")
_NAME = re.compile("[a-zA-Z0-9._-]+")
"""Names that topics can have: those in a list of all topics that are not the story's own are others'."""
_MS = datetime.timedelta(milliseconds=1)
_LEADER_EPOCH = slice(12, 16)
"""Where a record batch names the leader that wrote it."""
_CHECKSUM = slice(17, 21)
_CHECKED = 21
"""Where the bytes begin that the checksum of a batch covers."""
_TIMES = slice(27, 43)
_PRODUCER = slice(43, 51)
_CONTROL = 0x20
_COORDINATOR_EPOCH = slice(-5, -1)
"""Where the marker of a transaction, the only record of its batch, has the epoch of the coordinator that wrote it."""


class Symbols:
    """Numbers for made-up values, in the order in which they first appear."""

    def __init__(self) -> None:
        self._known: dict[Any, str] = {}

    def known(self, value: Any) -> str:
        """The symbol of a value that has appeared; all others are alike."""
        return self._known.get(value, "~")

    def of(self, value: Any) -> str:
        shape = _UUID.sub("*", value) if isinstance(value, str) else type(value).__name__
        return self._known.setdefault(value, f"<{shape} #{len(self._known) + 1}>")


def plain(value: Any) -> Any:
    """An answer as dicts, lists and scalars."""
    if isinstance(value, Silence):
        return {"silence": value.why}
    if is_dataclass(value):
        named = {f.name: _field(f.name, getattr(value, f.name)) for f in fields(value)}
        if named.get("aborted_transactions"):
            end = _end(bytes(value.records or b""))
            named["aborted_transactions"] = [a for a in named["aborted_transactions"] if a["first_offset"] < end]
        return named
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, datetime.timedelta):
        return value // _MS
    if isinstance(value, uuid.UUID | datetime.datetime):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def _field(name: str, value: Any) -> Any:
    if name == "records" and value:
        return [_batch(batch) for batch in _batches(bytes(value))]
    return plain(value)


def _batch(batch: bytes) -> Any:
    """A batch without what the server made up: producer ids, and the times of markers and who wrote them."""
    producer = int.from_bytes(batch[_PRODUCER], "big", signed=True)
    if producer < 0:
        return batch.hex()
    sound = crc32c(batch[_CHECKED:]) == int.from_bytes(batch[_CHECKSUM], "big")
    rest = bytearray(batch)
    rest[_CHECKSUM], rest[_PRODUCER] = bytes(4), bytes(8)
    if int.from_bytes(batch[_CHECKED : _CHECKED + 2], "big") & _CONTROL:
        rest[_TIMES], rest[_COORDINATOR_EPOCH] = bytes(16), bytes(4)
    return {"batch": rest.hex(), "producer_id": producer, "sound": sound}


def _end(data: bytes) -> int:
    """The offset after the last whole batch. Which transactions are told that began later is up to the server."""
    last = b""
    for last in _batches(data):  # noqa: B007 - the last one counts
        pass
    base, delta = int.from_bytes(last[:8], "big"), int.from_bytes(last[23:27], "big")
    return base + delta + 1 if last else 0


def _batches(data: bytes) -> Iterator[bytes]:
    """Record batches without the leader's epoch; a part of one at the end is left out, as clients do."""
    at = 0
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if end > len(data):
            return
        batch = bytearray(data[at:end])
        batch[_LEADER_EPOCH] = bytes(4)
        yield bytes(batch)
        at = end


def arranged(value: Any, symbols: Symbols) -> Any:
    """Arrays in an order that is the same for both servers: the protocol promises none."""
    if isinstance(value, dict):
        return {name: arranged(inner, symbols) for name, inner in value.items()}
    if isinstance(value, list):
        items = [arranged(item, symbols) for item in value]
        return sorted(items, key=lambda item: (identity(item), *map(json.dumps, _without_made_up(item, symbols))))
    return value


def identity(item: Any) -> str:
    """What an item of an array is about, if it says so by a name that the story gave."""
    if not isinstance(item, dict):
        return ""
    return json.dumps([item[name] for name in IDENTITY if item.get(name) is not None])


def _without_made_up(value: Any, symbols: Symbols) -> tuple[Any, Any]:
    """What a server did not invent, and which of the known inventions are in it."""
    return replaced(value, lambda _: ""), replaced(value, symbols.known)


def replaced(value: Any, by: Callable[[Any], str], name: str = "") -> Any:
    """A value with something else for what a server made up."""
    if isinstance(value, dict):
        return {n: replaced(inner, by, n) for n, inner in value.items()}
    if isinstance(value, list):
        return [replaced(item, by, name) for item in value]
    return by(value) if name in MADE_UP and not _says_nothing(name, value) else value


def _says_nothing(name: str, value: Any) -> bool:
    """Whether a value stands for none. There is a producer 0, but no session."""
    return value in _NOTHING or (name == "session_id" and value == 0)


def normal(answer: Any, prefix: str, symbols: Symbols) -> Any:
    """An answer as it is compared: only what concerns the story, arranged, with symbols."""
    return replaced(arranged(_renamed(_own(plain(answer), prefix), prefix), symbols), symbols.of)


def _renamed(value: Any, prefix: str) -> Any:
    """The same names for both servers, also inside bytes."""
    if isinstance(value, dict):
        return {name: _renamed(inner, prefix) for name, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(item, prefix) for item in value]
    return value.replace(prefix, "own").replace(prefix.encode().hex(), "own") if isinstance(value, str) else value


def _own(value: Any, prefix: str) -> Any:
    """Lists of everything there is (groups, topics) have things of other stories in them."""
    if isinstance(value, list):
        return [_own(item, prefix) for item in value if not _foreign(item, prefix)]
    if isinstance(value, dict):
        return {name: _own(inner, prefix) for name, inner in value.items()}
    return value


def _foreign(item: Any, prefix: str) -> bool:
    if not isinstance(item, dict):
        return False
    if "protocol_type" in item and "error_code" not in item:  # a row of a list of all groups
        return not item["group_id"].startswith(prefix)
    if "transaction_state" in item and "error_code" not in item:  # a row of a list of all transactions
        return not item["transactional_id"].startswith(prefix)
    if item.get("topic") == OFFSETS:
        return True
    name = item.get("name")
    if not isinstance(name, str) or name.startswith(prefix):
        return False
    return name.startswith(OURS) or ("is_internal" in item and _NAME.fullmatch(name) is not None)


def differing(kafka: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places where two normal answers differ: path, what Apache Kafka said, what we said."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in [*kafka, *(n for n in ours if n not in kafka)]:
            yield from differing(kafka.get(name, "(absent)"), ours.get(name, "(absent)"), f"{path}.{name}".lstrip("."))
    elif isinstance(kafka, list) and isinstance(ours, list) and (pairs := _paired(kafka, ours)) is not None:
        for mark, one, other in pairs:
            yield from differing(one, other, f"{path}[{mark}]")
    elif kafka != ours:
        yield path, kafka, ours


def _paired(kafka: list[Any], ours: list[Any]) -> list[tuple[object, Any, Any]] | None:
    """Items of two arrays that are about the same thing; None where there is no telling."""
    theirs, mine = ({identity(item): item for item in items} for items in (kafka, ours))
    if len(theirs) == len(kafka) > 0 and len(mine) == len(ours) > 0 and not {"", "[]"} & {*theirs, *mine}:
        names = [*theirs, *(name for name in mine if name not in theirs)]
        return [(name.strip('[]"'), theirs.get(name, "(absent)"), mine.get(name, "(absent)")) for name in names]
    if len(kafka) != len(ours):
        return None
    return list(zip(range(len(kafka)), kafka, ours, strict=True))


def differences(outcome: Outcome) -> list[str]:
    """What is not allowed to differ, step by step, in words."""
    return _compared(outcome.kafka, outcome.ours, ("Kafka", "Headwater"))


def wavering(ours: Sequence[Transcript]) -> list[str]:
    """Where our own answers to a story were not the same every time that it was told."""
    return [line for other in ours[:-1] for line in _compared(ours[-1], other, ("Headwater now", "Headwater before"))]


def _compared(one: Transcript, other: Transcript, names: tuple[str, str]) -> list[str]:
    found: list[str] = []
    reference, measured = Symbols(), Symbols()
    for number, (said, answered) in enumerate(zip(one.said, other.said, strict=False), 1):
        api = said.asked.split(" ", 1)[0]
        if answered.asked.split(" {")[0] != said.asked.split(" {")[0]:
            return [*found, f"step {number}: {names[0]} goes on with {said.asked}, {names[1]} with {answered.asked}"]
        wanted, got = normal(said.answer, one.prefix, reference), normal(answered.answer, other.prefix, measured)
        for path, this, that in differing(wanted, got):
            if not _allowed(api, path, this, that, ALLOWED):
                place = f"step {number}, {said.asked[:300]}\n    {path}"
                found.append(f"{place}: {names[0]} {this!r}, {names[1]} {that!r}")
    if len(one.said) != len(other.said):
        why = other.broken or one.broken
        found.append(f"{names[0]} told {len(one.said)} steps, {names[1]} {len(other.said)}: {why}")
    return found


def _allowed(api: str, path: str, wanted: Any, got: Any, rules: Mapping[str, Rule]) -> bool:
    return any(rule.covers(api, path, wanted, got) for rule in rules.values())
