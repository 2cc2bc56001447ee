"""A cluster by the URL of a gateway."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from headwater.clock import SystemChance
from headwater.errors import BadInput, NoRecord, NotReady
from headwater.query.wanted import FOREVER, Wanted
from headwater.sdk.asking import RemoteAnswer
from headwater.sdk.connection import Connection, PartitionInfo, TopicInfo
from headwater.sdk.consumer import Source
from headwater.sdk.http import Http
from headwater.sdk.reading import Reading
from headwater.sdk.records import (
    Appended,
    Data,
    NewRecord,
    Place,
    Record,
    Start,
    document,
    format_of,
    key_of,
    record_of,
)
from headwater.sdk.result import Result
from headwater.sdk.scan import Rows, Scan

if TYPE_CHECKING:
    import pyarrow as pa

PAGE_ITEMS = 1_000
ARROW = "application/vnd.apache.arrow.stream"


class RemoteConnection(Connection):
    """See `Connection`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def __repr__(self) -> str:
        return f"<Connection to {self._http.url}>"

    def close(self) -> None:
        self._http.close()

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return str(self._http.get("/v1")["cluster_id"])

    @property
    def url(self) -> str:
        """The URL of the gateway."""
        return self._http.url

    def look(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """A document of the HTTP API (`docs/http.md`)."""
        return self._http.get(path, query)

    def table(self, topic: str) -> Any:
        """A topic as a table: its version, rows and files, and what is not settled yet."""
        return self._http.get(f"/v1/tables/{quote(topic, safe='')}")

    # --- topics ----------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        names: list[str] = []
        query: dict[str, object] = {"limit": PAGE_ITEMS}
        while True:
            page = self._http.get("/v1/topics", query)
            names += [item["name"] for item in page["items"]]
            if not page.get("next"):
                return sorted(names)
            query["next"] = page["next"]

    def describe(self, topic: str) -> TopicInfo:
        found = self._http.get(path_of(topic))
        partitions = tuple(
            PartitionInfo(**{name: line[name] for name in PartitionInfo.__slots__}) for line in found["partitions"]
        )
        return TopicInfo(found["name"], found["id"], partitions, found["configs"] or {})

    def create_topic(self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None) -> None:
        body = msgspec.json.encode({"name": topic, "partitions": partitions, "configs": dict(configs or {})})
        self._http.request("POST", "/v1/topics", body=body, headers={"Content-Type": "application/json"}, repeat=False)

    # --- writing ---------------------------------------------------------------------------------------

    def append(self, topic: str, record: NewRecord, key: str | None, expected: int | None) -> Place:
        body: dict[str, Any] = {"records": [document(record)]}
        if expected is not None:
            body["expected_offset"] = expected
        answer = self._post(topic, msgspec.json.encode(body), key)
        [place] = answer["records"]
        return Place(place["partition"], place["offset"])

    def append_many(
        self, topic: str, records: Iterable[NewRecord | Data], count: int, size: int, key: str | None
    ) -> Appended:
        name, total = key or SystemChance().uuid().hex, 0
        ranges: dict[int, tuple[int, int]] = {}
        for number, lines in enumerate(_batches(records, count, size)):
            body = b'{"records":[' + b",".join(lines) + b"]}"
            answer = self._post(topic, body, f"{name}-{number}", {"Prefer": "return=minimal"})
            for line in answer["partitions"]:
                first, _ = ranges.get(line["partition"], (line["first_offset"], 0))
                ranges[line["partition"]] = (min(first, line["first_offset"]), line["last_offset"])
            total += len(lines)
        return Appended(total, ranges)

    def _post(self, topic: str, body: bytes, key: str | None, more: Mapping[str, str] | None = None) -> Any:
        headers = {"Content-Type": "application/json", **(more or {})}
        if key is not None:
            if not key or len(key) > 255 or not all("!" <= char <= "~" for char in key):
                raise BadInput(f"the idempotency key {key!r} must have 1 to 255 visible characters of ASCII")
            headers["Idempotency-Key"] = key
        path = f"{path_of(topic)}/records"
        return self._http.request("POST", path, body=body, headers=headers, repeat=key is not None).json()

    # --- reading ---------------------------------------------------------------------------------------

    def source(self, topic: str, group: str | None, start: Start, decode: bool) -> Source:
        return Reading(self._http, topic, group, start, decode=decode)

    def get(self, topic: str, partition: int, offset: int, *, decode: bool = False) -> Record | None:
        for number in (partition, offset):
            if not isinstance(number, int) or number < 0:
                raise BadInput(f"{number!r} is not the number of a partition or an offset")
        return self._found(topic, f"/partitions/{partition}/records/{offset}", {}, decode)

    def latest(self, topic: str, key: Data, *, partition: int | None = None, decode: bool = False) -> Record | None:
        query: dict[str, object] = {"key_base64": b64encode(key_of(key)).decode()}
        if partition is not None:
            query["partition"] = partition
        return self._found(topic, "/latest", query, decode)

    def _found(self, topic: str, path: str, query: Mapping[str, object], decode: bool) -> Record | None:
        try:
            answer = self._http.get(f"{path_of(topic)}{path}", {**query, "format": format_of(decode)})
        except NoRecord:
            return None
        return record_of(topic, answer["record"], decode)

    def scan_wanted(self, topic: str, wanted: Wanted, columns: list[str] | None) -> Scan:
        nothing = replace(wanted, until_offset=0, until_offsets={}, kept={})

        def look() -> pa.Schema:
            found = self._rows(topic, nothing, columns)
            list(found.batches)
            return found.schema

        return Scan(lambda: self._rows(topic, wanted, columns), look, f"topic {topic!r}")

    def _rows(self, topic: str, wanted: Wanted, columns: list[str] | None) -> Rows:
        """Begin to read rows. The connection is closed behind the last one, or when the caller stops reading."""
        import pyarrow as pa

        def items() -> Iterator[Any]:
            path, query = f"{path_of(topic)}/rows", query_of(wanted, columns)
            with self._http.stream(path, query, {"Accept": ARROW}) as response:
                try:
                    with pa.ipc.open_stream(pa.PythonFile(response, mode="r")) as reader:
                        yield reader.schema
                        yield from reader
                except pa.ArrowInvalid as error:
                    raise NotReady(f"the rows of topic {topic!r} ended early: scan again ({error})") from error

        found = items()
        return Rows(next(found), found)

    # --- asking ----------------------------------------------------------------------------------------

    def ask(self, body: Mapping[str, Any]) -> Result:
        return Result(RemoteAnswer(self._http, body))

    def plan(self, topic: str, wanted: Wanted, split_bytes: int) -> Plan:
        """A scan, divided into parts of about so many stored bytes at most, for readers that work side by side."""
        found = self._http.get(f"{path_of(topic)}/splits", {**query_of(wanted), "split_bytes": split_bytes})
        kept = {line["partition"]: line["kept"] for line in found["partitions"]}
        parts = [
            {line["partition"]: (line["from_offset"], line["until_offset"]) for line in part["ranges"]}
            for part in found["parts"]
        ]
        return Plan(found["id"], kept, parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of a scan."""

    topic_id: str
    kept: Mapping[int, int]
    """By partition, the offset from which on no row was removed."""
    parts: list[dict[int, tuple[int, int]]]
    """Of each part, by partition, the first offset and the one behind the last."""


def path_of(topic: str) -> str:
    """The path of a topic."""
    if not isinstance(topic, str) or not topic:
        raise BadInput("the name of a topic is missing")
    return f"/v1/topics/{quote(topic, safe='')}"


def query_of(wanted: Wanted, columns: list[str] | None = None) -> dict[str, object]:
    """The parameters of a scan."""
    query: dict[str, object] = {"columns": ",".join(columns)} if columns is not None else {}
    if wanted.partitions is not None:
        query["partitions"] = ",".join(map(str, wanted.partitions))
    for name, alone, default, by_partition in (
        ("from_offset", wanted.from_offset, 0, wanted.from_offsets),
        ("until_offset", wanted.until_offset, FOREVER, wanted.until_offsets),
    ):
        if by_partition:
            query[f"{name}s"] = _listed(by_partition)
        if alone != default:
            query[name] = alone
    if wanted.from_ms > -FOREVER:
        query["from"] = wanted.from_ms
    if wanted.until_ms < FOREVER:
        query["until"] = wanted.until_ms
    if wanted.version is not None:
        query["version"] = wanted.version
    if wanted.kept:
        query["kept"] = _listed(wanted.kept)
    return query


def _listed(by_partition: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in by_partition.items())


def _batches(records: Iterable[NewRecord | Data], count: int, size: int) -> Iterator[list[bytes]]:
    """Records as JSON, in batches of at most so many records and about so many bytes."""
    lines: list[bytes] = []
    held = 0
    for record in records:
        made = record if isinstance(record, NewRecord) else NewRecord(value=record)
        line = msgspec.json.encode(document(made))
        if lines and (len(lines) == count or held + len(line) > size):
            yield lines
            lines, held = [], 0
        lines.append(line)
        held += len(line)
    if lines:
        yield lines
