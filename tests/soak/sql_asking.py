"""Questions over HTTP, for the soak of SQL: whole answers, or an error."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import suppress
from typing import Any

import psutil

from tests.faults.lake_running import LakeRunning

ENGINES = ("duckdb", "spark")
ANSWER_SECONDS = 900.0
BUSY_SECONDS = 120.0
BUSY = 503


class Failed(Exception):
    """A query that was not answered, and said so."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status
        """Of the answer; 0 if there was none, or if it broke off."""


def ask(server: LakeRunning, sql: str, engine: str, as_of: dict[str, Any] | None = None) -> list[list[Any]]:
    """The rows of an answer. Whatever is less than the whole answer is `Failed`."""
    body = {"sql": sql, "engine": engine, **({"as_of": as_of} if as_of else {})}
    connection = http.client.HTTPConnection(server.gateway, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", "/v1/sql", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        status, told = answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failed(f"no answer: {error!r}") from error
    finally:
        connection.close()
    if status != 200:
        raise Failed(f"{status} {told.get('type')}: {told.get('detail')}", status)
    if "error" in told or told.get("row_count") != len(told["rows"]):
        raise Failed(f"the answer breaks off: {told.get('error')}")
    assert told["engine"] == engine, told["reason"]
    rows: list[list[Any]] = told["rows"]
    return rows


def asked(server: LakeRunning, sql: str, engine: str, as_of: dict[str, Any] | None = None) -> list[list[Any]]:
    """Like `ask`. A gateway that is busy is asked again."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return ask(server, sql, engine, as_of)
        except Failed as error:
            if error.status not in (0, BUSY) or time.monotonic() > until:
                raise
        time.sleep(0.5)


def workers(gateway: psutil.Process, engine: str) -> list[psutil.Process]:
    """The processes of an engine that belong to a gateway."""
    found, children = [], list[psutil.Process]()
    with suppress(psutil.NoSuchProcess):
        children = gateway.children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            if f"headwater.query.engines.{engine}.worker" in child.cmdline():
                found.append(child)
    return found
