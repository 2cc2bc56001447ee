"""Random requests made from the OpenAPI document, and what their answers must keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ELSEWHERE = ("deleteTopic", "explainProblem", "browseApiFile")
"""Calls whose name is not that of a topic, or that would delete it."""


def probe(document: dict[str, Any], url: str, examples: int, headers: dict[str, str], topic: str) -> Counter[int]:
    """Send random requests of every call, valid and not. Raises for an answer that breaks the document, or 5xx.

    Half of those about a topic are about `topic`, and none deletes it. Returns how many answers had each status.
    """
    schema = schemathesis.openapi.from_dict(document)
    statuses: Counter[int] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()  # type: ignore[union-attr]

        cases = operation.as_strategy()
        if operation.body or operation.query:
            cases |= operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=cases, known=hypothesis.strategies.booleans())
        def ask(case: Any, known: bool) -> None:
            name = case.operation.definition.raw["operationId"]
            if known and "name" in (case.path_parameters or {}) and name not in ELSEWHERE:
                case.path_parameters["name"] = topic
            if name == "settleTable" and "wait" in (case.query or {}):
                del case.query["wait"]  # nobody waits here
            if name == "createLink" and isinstance(case.body, dict):
                case.body["paused"] = True  # nobody connects to an address that chance has made
            if name in ("changeMode", "changeCompatibility") and isinstance(case.body, dict):
                case.body.update(mode="READWRITE", compatibility="BACKWARD")  # they hold for all subjects
            if name == "resumeLink":
                case.path_parameters["link"] = "unknown"
            answer = case.call(base_url=url, headers=headers, timeout=70)
            statuses[answer.status_code] += 1
            case.validate_response(answer, checks=CHECKS)

        ask()
    return statuses
