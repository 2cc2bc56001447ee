"""The OpenAPI 3.1 document: every call with its parameters, bodies, answers, problems and examples.

It is made from the handlers, when it is asked for the first time. Families of calls that imitate another product have
a document of their own elsewhere and are left out, but for the schema registry.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import BodyKwarg, HeaderParameter, ParameterKwarg, PathParameter, QueryParameter
from litestar.response import Response, Stream
from litestar.types import ControllerRouterHandler

from headwater.gateway.callers import is_open
from headwater.gateway.description.refusals import (
    REGISTRY_MEDIA,
    kinds_of,
    problem_schema,
    refusals,
    registry_problem_schema,
    registry_refusals,
)
from headwater.gateway.description.sample import Sample
from headwater.gateway.description.samples import SAMPLES
from headwater.gateway.description.schemas import Schema, Schemas, without_null
from headwater.gateway.queries.bodies import SqlAnswer
from headwater.gateway.records.bodies import JSON, NDJSON, RAW, AppendBody
from headwater.gateway.records.forms import Form, Page
from headwater.gateway.results.forms import MEDIA

VERSION = "1"
"""The version of the API, not of the gateway: everybody may read the document."""
BINARY: Schema = {}
REGISTRY = "schemas"
"""The tag of the calls of the schema registry. Their answers and errors have a form of their own."""
BODY = "body"
"""In the options of a handler that reads its body itself: the type of the body."""
APPEND = "appendRecords"
ASK = "askSql"
FRONT = "openRegistry"
ABOUT = """\
Topics, records, tables, groups and the cluster over HTTP.

Users and rules are Kafka's. What a caller may not DESCRIBE does not exist: the answer is 404. Listings have pages: \
`next` of an answer is the cursor of the next page. An error is a problem document (RFC 9457) whose `type` never \
changes and leads to a page that explains it.

The schema registry (`/subjects`, `/schemas`, `/config`, `/mode`, `/compatibility`) has the paths, answers and errors \
of Confluent's. Two families of calls of a gateway are described elsewhere: the REST Proxy v3 paths (`/v3`, \
`/kafka/v3`) by Confluent, and the read-only Iceberg REST catalog (`/iceberg`) by Apache Iceberg."""
TAGS = {
    "cluster": "The cluster, its processes and its feature level.",
    "topics": "Topics and their configs.",
    "records": "Appending and reading records.",
    "sql": "Queries over topics.",
    "groups": "Groups, their offsets and their lag.",
    "tables": "Topics as tables: versions, files, freshness.",
    REGISTRY: "Schemas of keys and values: the schema registry.",
    "dead letters": "Records that could not be decoded by a schema.",
    "transactions": "Transactional ids and their transactions.",
    "links": "Links, which copy topics of another Kafka.",
    "users": "Users and their passwords.",
    "rules": "Access rules (Kafka's ACLs).",
    "problems": "Pages that explain problems.",
    "description": "This document, and a page that shows it.",
}
SECURITY = {
    "basic": {"type": "http", "scheme": "basic", "description": "The name and the password of a user."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the OAuth provider."},
    "certificate": {"type": "mutualTLS", "description": "A client certificate."},
}
_STATUSES = {200: "Done.", 201: "Created.", 202: "Under way.", 204: "Done. The answer has no body.", 503: "Not now."}
_LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


class Description:
    """The document of a list of handlers."""

    def __init__(self, routes: Sequence[ControllerRouterHandler]) -> None:
        self._handlers = [one for one in routes if isinstance(one, HTTPRouteHandler) and one.include_in_schema]
        self._lock = threading.Lock()
        self._encoded = b""

    def __repr__(self) -> str:
        return f"<Description of {len(self._handlers)} calls>"

    def encoded(self) -> bytes:
        """The document as JSON. Several threads may ask at once; one makes it."""
        with self._lock:
            if not self._encoded:
                self._encoded = msgspec.json.encode(self.document())
            return self._encoded

    def document(self) -> dict[str, Any]:
        """The document."""
        schemas = Schemas()
        paths: dict[str, dict[str, Any]] = {}
        for handler in self._handlers:
            path, method = path_of(handler), method_of(handler)
            paths.setdefault(path, {})[method.lower()] = _operation(handler, schemas)
        schemas.components["Problem"] = problem_schema()
        schemas.components["RegistryProblem"] = registry_problem_schema()
        return {
            "openapi": "3.1.0",
            "info": {"title": "Headwater", "version": VERSION, "description": ABOUT},
            "servers": [{"url": "/", "description": "This gateway."}],
            "security": [*({name: []} for name in SECURITY), {}],
            "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": dict(sorted(schemas.components.items())), "securitySchemes": SECURITY},
        }


def path_of(handler: HTTPRouteHandler) -> str:
    """The path of a handler, with parameters as OpenAPI has them."""
    [path] = handler.paths
    return re.sub(r"{(\w+):\w+}", r"{\1}", path)


def method_of(handler: HTTPRouteHandler) -> str:
    """The method of a handler, in capitals."""
    [method] = handler.http_methods
    return str(method)


def samples_of(operation_id: str) -> list[Sample]:
    """The examples of a call."""
    return [sample for sample in SAMPLES if sample.call == operation_id]


def _operation(handler: HTTPRouteHandler, schemas: Schemas) -> Schema:
    name = str(handler.operation_id)
    summary, _, about = (inspect.getdoc(handler.fn) or "").partition("\n\n")
    parameters, body = _inputs(handler, schemas)
    path, method = path_of(handler), method_of(handler)
    kinds = kinds_of(path, method, has_body=body is not None)
    told: Schema = {
        "operationId": name,
        "summary": summary.replace("\n", " "),
        "tags": list(handler.tags or ()),
        "parameters": [_with_example(parameter, name) for parameter in parameters],
        "responses": {
            **_answers(handler, schemas),
            **(registry_refusals(kinds) if of_registry(handler) else refusals(kinds)),
        },
    }
    if about:
        told["description"] = about.replace("\n", " ")
    if body is not None:
        told["requestBody"] = {"required": True, "content": body}
    if is_open(path.partition("{")[0]):
        told["security"] = []
    if name == "health":
        told["responses"]["503"] = {**told["responses"]["200"], "description": "The gateway does not serve."}
    return told


def of_registry(handler: HTTPRouteHandler) -> bool:
    """Whether a call is one of the schema registry."""
    return REGISTRY in (handler.tags or ())


def _inputs(handler: HTTPRouteHandler, schemas: Schemas) -> tuple[list[Schema], Schema | None]:
    """The parameters of a call, and the content of its body."""
    name = str(handler.operation_id)
    functions = [handler.fn, *(one.dependency for one in (handler.dependencies or {}).values())]  # type: ignore[union-attr]
    parameters, body = [], None
    for function in functions:
        defaults = inspect.signature(function).parameters
        for own, hint in get_type_hints(function, include_extras=True).items():
            for given in getattr(hint, "__metadata__", ()):
                if isinstance(given, BodyKwarg):
                    body = {JSON: {"schema": schemas.of(get_args(hint)[0]), **_bodies(name, JSON)}}
                elif isinstance(given, ParameterKwarg) and given.name != "Accept":  # the media types tell it
                    parameters.append(_parameter(own, given, get_args(hint)[0], defaults[own].default, schemas))
    if BODY in handler.opt:
        body = {JSON: {"schema": schemas.of(handler.opt[BODY]), **_bodies(name, JSON)}}
    if name == APPEND:
        body = {JSON: {"schema": schemas.of(AppendBody), **_bodies(name, JSON)}}
        body |= {media: {"schema": BINARY, **_bodies(name, media)} for media in (NDJSON[0], *RAW)}
    return parameters, body


def _parameter(own: str, given: ParameterKwarg, kind: Any, default: Any, schemas: Schemas) -> Schema:
    places = {PathParameter: "path", QueryParameter: "query", HeaderParameter: "header"}
    schema = without_null(schemas.of(kind))
    limits = {told: getattr(given, limit) for limit, told in _LIMITS.items() if getattr(given, limit) is not None}
    schema = {**schema, **limits}
    if isinstance(given, PathParameter) and schema.get("type") == "string":
        schema["minLength"] = 1
    if default not in (None, "", inspect.Parameter.empty):
        schema["default"] = default
    told = {"name": given.name or own, "in": places[type(given)], "required": isinstance(given, PathParameter)}
    return {**told, "description": given.description, "schema": schema}


def _with_example(parameter: Schema, name: str) -> Schema:
    for sample in samples_of(name):
        given = {"path": sample.path, "query": sample.query, "header": sample.headers}[parameter["in"]]
        if parameter["name"] in given:
            return {**parameter, "example": given[parameter["name"]]}
    return parameter


def _bodies(name: str, media: str) -> Schema:
    found = [one for one in samples_of(name) if one.body is not None and one.media == media]
    return {"examples": {one.title: {"summary": one.summary, "value": one.body} for one in found}} if found else {}


def _answers(handler: HTTPRouteHandler, schemas: Schemas) -> Schema:
    """The answers of a call that succeeds, by status."""
    name, kind = str(handler.operation_id), get_type_hints(handler.fn)["return"]
    if get_origin(kind) is Response:
        [kind] = get_args(kind)
    statuses = {int(handler.status_code or 200), *(one.status for one in samples_of(name))}
    return {
        str(status): {
            "description": _STATUSES[status],
            **({"content": _content(name, kind, status, handler, schemas)} if status != 204 else {}),
        }
        for status in sorted(statuses)
    }


def _content(name: str, kind: Any, status: int, handler: HTTPRouteHandler, schemas: Schemas) -> Schema:
    found: dict[str, Schema]
    if of_registry(handler):
        found = {JSON: {"schema": BINARY}} if kind is str else {REGISTRY_MEDIA: {"schema": schemas.of(kind)}}
    elif kind is Stream or kind in (str, bytes):
        found = {str(getattr(handler.media_type, "value", handler.media_type)): {"schema": BINARY}}
    elif _is_struct(kind):
        found = {JSON: {"schema": schemas.of(kind)}}
    elif name == FRONT:
        found = {REGISTRY_MEDIA: {"schema": schemas.of(kind)}, "text/html": {"schema": BINARY}}
    elif name == ASK:
        found = {media: {"schema": BINARY} for media in MEDIA.values()} | {JSON: {"schema": schemas.of(SqlAnswer)}}
    else:  # an answer with records, in any form
        found = {form.value: {"schema": BINARY} for form in Form} | {JSON: {"schema": schemas.of(Page)}}
    for sample in samples_of(name):
        if sample.status == status and sample.answer is not None and sample.answer_media in found:
            examples = found[sample.answer_media].setdefault("examples", {})
            examples[sample.title] = {"summary": sample.summary, "value": sample.answer}
    return found


def _is_struct(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return inspect.isclass(origin) and issubclass(origin, msgspec.Struct)
