"""Queries through a gateway: the request, and the answer that is read from the connection while the engine makes it."""

from __future__ import annotations

import contextlib
import http.client
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from headwater.errors import BadInput, HeadwaterError, NotReady, QueryCancelled, QueryFailed
from headwater.extras import need
from headwater.sdk.http import Http
from headwater.sdk.records import as_ms
from headwater.sdk.result import Parameter, QueryInfo

if TYPE_CHECKING:
    import pyarrow as pa

PATH = "/v1/sql"
ARROW = "application/vnd.apache.arrow.stream"
SILENT_SECONDS = 3_600.0
"""How long a query may take to its first row, unless it has a time-out."""
GRACE_SECONDS = 30.0
"""How long behind its time-out a query is given up, if the gateway does not answer at all."""


def body_of(
    sql: str,
    parameters: Sequence[Parameter] = (),
    engine: str = "auto",
    as_of: int | str | datetime | Mapping[int, int] | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """The body of a request."""
    if not isinstance(sql, str) or not sql.strip():
        raise BadInput("the statement is missing")
    if isinstance(parameters, str | bytes):
        raise BadInput("`parameters` is a list of values, one for each `?`")
    body: dict[str, Any] = {"sql": sql, "engine": engine}
    if parameters:
        body["parameters"] = [_parameter(value) for value in parameters]
    if as_of is not None:
        body["as_of"] = as_of_body(as_of)
    if timeout is not None:
        if not timeout > 0:
            raise BadInput(f"`timeout` is {timeout}: it must be above 0")
        body["limits"] = {"seconds": timeout}
    return body


def as_of_body(given: int | str | datetime | Mapping[int, int]) -> dict[str, Any]:
    """A state of the tables: a version, a time, the tag of an hour, or offsets by partition."""
    if isinstance(given, bool):
        raise BadInput(f"`as_of` is {given}: it is a version, a time, a tag or offsets by partition")
    if isinstance(given, int):
        return {"version": given}
    if isinstance(given, datetime):
        return {"time": as_ms(given)}
    if isinstance(given, str):
        return {"tag": given}
    return {"offsets": {str(partition): offset for partition, offset in given.items()}}


def _parameter(value: Parameter) -> Any:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise BadInput(f"a parameter is text, a number, a boolean, bytes or None, not {type(value).__name__}")


class RemoteAnswer:
    """The answer of a gateway to a query, as Arrow batches. See `Answering`."""

    def __init__(self, http: Http, body: Mapping[str, Any]) -> None:
        need("arrow")
        import pyarrow as pa

        seconds = body.get("limits", {}).get("seconds")
        self._http = http
        self._open = contextlib.ExitStack()
        silence = SILENT_SECONDS if seconds is None else seconds + GRACE_SECONDS
        headers = {"Accept": ARROW, "Content-Type": "application/json"}
        response = self._open.enter_context(
            http.stream(PATH, {}, headers, body=msgspec.json.encode(body), silence=silence)
        )
        try:
            self.info = info_of(response)
            with self._reading():
                self._reader = self._open.enter_context(pa.ipc.open_stream(pa.PythonFile(response, mode="r")))
            self.schema: pa.Schema = self._reader.schema
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<RemoteAnswer of query {self.info.id}>"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        while True:
            with self._reading():
                try:
                    batch = self._reader.read_next_batch()
                except StopIteration:
                    return
            yield batch

    def cancel(self) -> None:
        """Cancel the query at the gateway."""
        self._http.request("DELETE", _path(self.info.id), repeat=True)

    def close(self) -> None:
        """Close the connection. The gateway cancels a query whose client leaves."""
        self._open.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Say why an answer ended early. The connection does not tell; the gateway does."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowInvalid, http.client.HTTPException, OSError, NotReady) as error:
            self.close()
            raise self._cause(error) from error

    def _cause(self, error: Exception) -> HeadwaterError:
        try:
            told = self._http.get(_path(self.info.id))
        except HeadwaterError:
            told = {}
        words = str(told.get("error") or "")
        if told.get("phase") == "cancelled":
            return QueryCancelled(words or "the query was cancelled")
        if told.get("phase") == "failed":
            return QueryFailed(words or "the query failed")
        return NotReady(f"the answer of {self._http.url} ended early: ask again ({error})")


def info_of(response: http.client.HTTPResponse) -> QueryInfo:
    """What the headers of an answer say about its query."""
    versions = {}
    for part in (response.getheader("Headwater-Versions") or "").split(","):
        topic, equals, version = part.rpartition("=")
        if equals:
            versions[topic] = int(version)
    return QueryInfo(
        response.getheader("Headwater-Query") or "",
        response.getheader("Headwater-Engine") or "",
        response.getheader("Headwater-Reason") or "",
        versions,
        response.getheader("Headwater-Notes") or "",
    )


def _path(query: str) -> str:
    return f"/v1/queries/{quote(query, safe='')}"
