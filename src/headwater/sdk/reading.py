"""What a consumer reads from a gateway: pages of partitions, and the offsets of a group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from headwater.errors import BadInput, NotFound
from headwater.sdk.consumer import Page
from headwater.sdk.http import Http
from headwater.sdk.records import Record, Start, as_ms, format_of, record_of

PAGE_RECORDS = 1_000
PAGE_ITEMS = 1_000
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two looks at a topic without new records: at first, and at most."""


class Reading:
    """A topic, for a consumer. It remembers where pages end, so that gaps in the offsets are crossed once."""

    def __init__(self, http: Http, topic: str, group: str | None, start: Start, *, decode: bool = False) -> None:
        if not isinstance(topic, str) or not topic:
            raise BadInput("the name of a topic is missing")
        if group is not None and not group:
            raise BadInput("the name of the group is empty")
        if not isinstance(start, datetime | Mapping) and start not in ("earliest", "latest"):
            raise BadInput(f"`start` is {start!r}: give 'earliest', 'latest', a datetime, or offsets by partition")
        if isinstance(start, datetime):
            as_ms(start)
        self._http = http
        self._topic = topic
        self._path = f"/v1/topics/{quote(topic, safe='')}"
        self._group = group
        self._start = start
        self._decode = decode
        self._next: dict[int, tuple[int, str]] = {}
        """By partition, a position and the word of the gateway for it."""

    def __repr__(self) -> str:
        return f"<Reading of {self._topic!r}>"

    def begin(self) -> dict[int, int]:
        """See `Source`."""
        lines = self._lines()
        found = {number: self._first(line) for number, line in lines.items()}
        if self._group is not None:
            found |= {p: offset for p, offset in self._committed().items() if p in found}
        return found

    def _first(self, line: Mapping[str, Any]) -> int:
        start, number = self._start, int(line["partition"])
        if isinstance(start, Mapping):
            return int(start.get(number, line["start"]))
        if isinstance(start, str):
            return int(line["start"] if start == "earliest" else line["stable"])
        page = self._page(number, {"from": as_ms(start), "limit": 1})
        return int(page["records"][0]["offset"]) if page["records"] else int(line["stable"])

    def _committed(self) -> dict[int, int]:
        found: dict[int, int] = {}
        query: dict[str, object] = {"limit": PAGE_ITEMS}
        while True:
            try:
                page = self._http.get(self._offsets, query)
            except NotFound:
                return found  # the group does not exist yet
            found |= {line["partition"]: line["offset"] for line in page["items"] if line["topic"] == self._topic}
            if not page.get("next"):
                return found
            query["next"] = page["next"]

    @property
    def _offsets(self) -> str:
        assert self._group is not None
        return f"/v1/groups/{quote(self._group, safe='')}/offsets"

    def ends(self) -> dict[int, int]:
        """See `Source`."""
        return {number: int(line["stable"]) for number, line in self._lines().items()}

    def read(self, positions: Mapping[int, int], wait: float) -> Page:
        """See `Source`. Of removed records the reader goes on at the first that is left."""
        give_up, pause = self._http.clock.monotonic() + wait, FIRST_PAUSE
        while True:
            page = self._looked(positions)
            if page.records or page.positions != positions or self._http.clock.monotonic() + pause >= give_up:
                return page
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _looked(self, positions: Mapping[int, int]) -> Page:
        lines = self._lines()
        records: list[Record] = []
        reached = dict(positions)
        for number, position in positions.items():
            line = lines.get(number)
            if line is None:
                continue
            at = max(position, int(line["start"]))
            if at < line["stable"]:
                found, at = self._partition(number, at, int(line["stable"]))
                records += found
            reached[number] = at
        return Page(records, reached)

    def _partition(self, number: int, position: int, stable: int) -> tuple[list[Record], int]:
        """A page of a partition, and where the next one begins. `stable` is where records ended before the call."""
        known, word = self._next.get(number, (-1, ""))
        where: dict[str, object] = {"next": word} if known == position else {"offset": position}
        page = self._page(number, {**where, "limit": PAGE_RECORDS})
        records = [record_of(self._topic, line, self._decode) for line in page["records"]]
        if records:
            position = records[-1].offset + 1
        elif page.get("caught_up"):
            position = stable
        if page.get("next"):
            self._next[number] = (position, page["next"])
        return records, position

    def _page(self, number: int, query: Mapping[str, object]) -> Any:
        return self._http.get(f"{self._path}/partitions/{number}/records", {**query, "format": format_of(self._decode)})

    def _lines(self) -> dict[int, Mapping[str, Any]]:
        return {line["partition"]: line for line in self._http.get(self._path)["partitions"]}

    def commit(self, positions: Mapping[int, int]) -> None:
        """See `Source`."""
        lines = [{"topic": self._topic, "partition": p, "offset": offset} for p, offset in sorted(positions.items())]
        body = msgspec.json.encode({"offsets": lines})
        self._http.request("PUT", self._offsets, body=body, headers={"Content-Type": "application/json"}, repeat=True)
