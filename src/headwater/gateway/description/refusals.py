"""The problems that a call can answer with, as the OpenAPI document has them."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.gateway import problems
from headwater.gateway.callers import is_open
from headwater.gateway.description.schemas import PREFIX, Schema
from headwater.gateway.origins import OTHER_HOST, OTHER_ORIGIN
from headwater.gateway.problems import MEDIA_TYPE, Kind
from headwater.gateway.records.appending import KEYS_FULL
from headwater.gateway.records.encoding import DOES_NOT_FIT

REGISTRY_MEDIA = "application/vnd.schemaregistry.v1+json"
"""The media type of the schema registry's answers."""
_OF_ALL = (problems.BAD_REQUEST, problems.HEAD_TOO_LARGE, problems.INTERNAL)
_OF_CALLERS = (
    problems.NOT_AUTHENTICATED, problems.NOT_ALLOWED, OTHER_ORIGIN, OTHER_HOST, problems.TOO_MANY, problems.OVERLOADED,
    problems.UNAVAILABLE, problems.OVER_QUOTA,
)  # fmt: skip
_OF_BODIES = (problems.TOO_SLOW, problems.TOO_LARGE, problems.MEDIA)
_OF_CHANGES = (
    problems.CONFLICT, problems.EXISTS, problems.UNPROCESSABLE, problems.STORE_FULL, problems.OUTCOME_UNKNOWN,
)  # fmt: skip
_OF_READING = (problems.NOT_ACCEPTABLE, problems.OUT_OF_RANGE, problems.DAMAGED)
_OF_SQL = (
    problems.NOT_ACCEPTABLE, problems.STATEMENT_REFUSED, problems.QUERY_FAILED, problems.QUERY_LIMIT,
    problems.QUERY_CANCELLED, problems.NO_ENGINE, problems.DAMAGED,
)  # fmt: skip


def kinds_of(path: str, method: str, *, has_body: bool) -> list[Kind]:
    """The kinds of problems that a call can answer with."""
    found = list(_OF_ALL)
    if not is_open(path.partition("{")[0]):
        found += _OF_CALLERS
    if "{" in path or path.startswith("/v1/queries"):
        found.append(problems.NOT_FOUND)
    if path == "/v1/sql":
        found += (problems.NOT_FOUND, *_OF_SQL)
    elif method != "GET":
        found += (problems.NOT_FOUND, *_OF_CHANGES)
    elif path.endswith(("/records", "/rows")):
        found += _OF_READING
    if path.endswith(("/latest", "/records/{offset}")):
        found += (problems.NO_RECORD, problems.QUERY_LIMIT, *_OF_READING[1:])
    if path.startswith("/v1/rules"):
        found.append(problems.UNPROCESSABLE)
    if has_body or method != "GET":
        found += _OF_BODIES
    if method == "POST" and path.endswith("/records"):
        found += (problems.MIRRORED, KEYS_FULL, DOES_NOT_FIT)
    if path == "/v1/dlq/{name}":
        found.append(problems.DAMAGED)
    return list(dict.fromkeys(found))


def refusals(kinds: Sequence[Kind]) -> Schema:
    """The answers of kinds of problems, by status."""
    told: Schema = {}
    for status in sorted({kind.status for kind in kinds}):
        same = [kind for kind in kinds if kind.status == status]
        content = {"schema": {"$ref": f"{PREFIX}Problem"}, "examples": {kind.name: _example(kind) for kind in same}}
        answer: Schema = {
            "description": " ".join(f"{kind.title} (`{problems.PATH}{kind.name}`)." for kind in same),
            "content": {MEDIA_TYPE: content},
        }
        if any(kind.retry for kind in same):
            seconds = {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}}
            answer["headers"] = {"Retry-After": seconds}
        told[str(status)] = answer
    return told


def registry_refusals(kinds: Sequence[Kind]) -> Schema:
    """The refusals of the schema registry, by status: a code and a message, as Confluent's registry has them."""
    told: Schema = {}
    for status in sorted({problems.NOT_FOUND.status, problems.UNPROCESSABLE.status, *(kind.status for kind in kinds)}):
        titles = [kind.title for kind in kinds if kind.status == status]
        content = {"schema": {"$ref": f"{PREFIX}RegistryProblem"}}
        told[str(status)] = {
            "description": ". ".join(titles or ["There is no such subject, version or schema, or it is not valid"])
            + ".",
            "content": {REGISTRY_MEDIA: content},
        }
    return told


def registry_problem_schema() -> Schema:
    """The schema of a refusal of the schema registry."""
    code = "The status, or a number of five digits whose first three are the status."
    return {
        "type": "object",
        "description": "A refusal of the schema registry.",
        "properties": {
            "error_code": {"type": "integer", "description": code},
            "message": {"type": "string", "description": "What is wrong, for people."},
        },
        "required": ["error_code", "message"],
    }


def problem_schema() -> Schema:
    """The schema of a problem document."""
    return {
        "type": "object",
        "description": "A problem document (RFC 9457). Some kinds have further members.",
        "properties": {
            "type": {
                "type": "string",
                "enum": sorted(f"{problems.PATH}{name}" for name in problems.KINDS),
                "description": "The kind of problem. It never changes, and is the path of a page that explains it.",
            },
            "title": {"type": "string", "description": "The kind in words."},
            "status": {"type": "integer", "description": "The status of the answer."},
            "detail": {"type": "string", "description": "What happened, for people. It may change."},
            "errors": {"type": "array", "description": "The parts of the request that are not valid."},
        },
        "required": ["type", "title", "status"],
    }


def _example(kind: Kind) -> Schema:
    told = {"type": f"{problems.PATH}{kind.name}", "title": kind.title, "status": kind.status}
    return {"summary": kind.title, "description": kind.meaning, "value": told}
