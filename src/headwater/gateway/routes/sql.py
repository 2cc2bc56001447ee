"""SQL: asking, looking at queries, and cancelling them."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from litestar import delete, get, post
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from litestar.types import ASGIApp

from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing
from headwater.gateway.problems import NOT_ALLOWED, NOT_FOUND, Refusal
from headwater.gateway.queries.answers import Answer
from headwater.gateway.queries.bodies import MAX_SQL, QueryLine, SqlBody, form_of, line_of, question_of
from headwater.gateway.services import Call, TheCall, missing, without_sql
from headwater.query.asking import Asking, Query
from headwater.state.cluster.access import AclResource, Operation

Accept = Annotated[str, HeaderParameter(name="Accept", description="The form of the answer.")]
Named = Annotated[
    Literal["json", "ndjson", "csv", "arrow", "parquet"] | None,
    QueryParameter(name="format", description="The form of the answer, instead of `Accept`."),
]
QueryId = Annotated[str, PathParameter(description="The id of the query.")]


@post("/v1/sql", operation_id="askSql", tags=["sql"], status_code=200)
async def ask_sql(call: TheCall, data: JSONBody[SqlBody], form: Named = None, accept: Accept = "") -> ASGIApp:
    """The result of a SQL statement over topics. A topic that the caller may not READ does not exist.

    Every record that was acknowledged before the call is seen, settled or not. `Accept` or `format` chooses the form:
    JSON, NDJSON, CSV, an Arrow stream or a Parquet file. The result is sent while the engine makes it; a client that
    leaves cancels its query. A query that fails later ends JSON with `error`, NDJSON with a last line `error`, and cuts
    the answer off in the other forms.
    """
    asking = _asking(call)
    chosen = form_of(accept, form)
    question = question_of(call, data)
    call.services.check_contact()
    call.usage.reads()
    call.as_stream()
    return cast(ASGIApp, Answer(call, asking, question, chosen))


@get("/v1/queries", operation_id="listQueries", tags=["sql"])
async def list_queries(call: TheCall, limit: Limit = DEFAULT_ITEMS) -> Listing[QueryLine]:
    """Queries of this gateway that run or have ended a while ago, the newest first.

    A caller sees its own queries; those who may DESCRIBE the cluster see all. There is no second page.
    """
    found = [query for query in _asking(call).running() if _visible(call, query)]
    return Listing([line_of(query) for query in found[: min(limit, call.services.own.page_items)]])


@get("/v1/queries/{id:str}", operation_id="describeQuery", tags=["sql"])
async def describe_query(call: TheCall, id: QueryId) -> QueryLine:
    """A query, and how far it is."""
    return line_of(_query(call, id), MAX_SQL)


@delete("/v1/queries/{id:str}", operation_id="cancelQuery", tags=["sql"], status_code=204)
async def cancel_query(call: TheCall, id: QueryId) -> None:
    """Cancel a query. Nothing happens if it is over. Queries of others need the right to ALTER the cluster."""
    query = _query(call, id)
    if not _own(call, query) and not call.may(Operation.ALTER, AclResource.CLUSTER):
        raise Refusal(
            NOT_ALLOWED, f"{call.caller.principal} may not ALTER the cluster, and the query is another user's"
        )
    await query.cancel(f"{call.caller.principal} has cancelled it")


def _asking(call: Call) -> Asking:
    if call.services.asking is None:
        raise Refusal(NOT_FOUND, without_sql())
    return call.services.asking


def _query(call: Call, name: str) -> Query:
    query = _asking(call).find(name)
    if query is None or not _visible(call, query):
        raise missing("query", name)
    return query


def _own(call: Call, query: Query) -> bool:
    return query.asker == call.caller.principal


def _visible(call: Call, query: Query) -> bool:
    return _own(call, query) or call.may(Operation.DESCRIBE, AclResource.CLUSTER)


ROUTES = (ask_sql, list_queries, describe_query, cancel_query)
