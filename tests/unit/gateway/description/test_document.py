"""The OpenAPI document: every call is in it, with an example, its problems and schemas that the examples keep."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import Any

import jsonschema_rs
import pytest

from headwater.gateway.application import MODULES, description_of
from headwater.gateway.description.document import REGISTRY, TAGS, samples_of
from headwater.gateway.description.refusals import REGISTRY_MEDIA
from headwater.gateway.description.sample import Sample
from headwater.gateway.description.samples import SAMPLES
from headwater.gateway.problems import KINDS, MEDIA_TYPE
from headwater.gateway.registry import routes as registry
from headwater.gateway.routes.description import FILES
from tests.support.gateways import gateway, secured

DOCUMENT: dict[str, Any] = description_of().document()
CALLS = [
    pytest.param(path, method, call, id=call["operationId"])
    for path, methods in DOCUMENT["paths"].items()
    for method, call in methods.items()
]
SVG = "http://www.w3.org/2000/svg"
"""The name of a format. Nobody fetches it."""
FAMILIES = [module for module in MODULES if not hasattr(module, "STYLES")]


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """A validator for a schema of the document."""
    return _validator(json.dumps(schema))


@cache
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    """Many calls share a schema, above all that of problems."""
    return jsonschema_rs.Draft202012Validator({**json.loads(schema), "components": DOCUMENT["components"]})


def test_every_handler_is_in_the_document() -> None:
    handlers: list[Any] = [*(route for module in FAMILIES for route in module.ROUTES), *registry.DESCRIBED]
    documented = {call.values[2]["operationId"] for call in CALLS}  # type: ignore[index, call-overload]
    assert documented == {handler.operation_id for handler in handlers} and len(handlers) == len(CALLS) > 40
    assert {sample.call for sample in SAMPLES} == documented
    assert not [path for path in DOCUMENT["paths"] if path.startswith(("/v3", "/kafka", "/iceberg"))]
    assert "/v3" in DOCUMENT["info"]["description"] and "/iceberg" in DOCUMENT["info"]["description"]


@pytest.mark.parametrize(("path", "method", "call"), CALLS)
def test_every_call_is_described(path: str, method: str, call: dict[str, Any]) -> None:
    assert call["operationId"] and call["summary"].endswith(".") and len(call["tags"]) == 1
    assert set(call["tags"]) <= set(TAGS)
    assert all(parameter["description"] for parameter in call["parameters"])
    named = {one["name"] for one in call["parameters"] if one["in"] == "path"}
    assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
    samples = samples_of(call["operationId"])
    assert samples and len({sample.title for sample in samples}) == len(samples)
    for content in call.get("requestBody", {}).get("content", {}).values():
        assert content["examples"]
    if call["tags"] == [REGISTRY]:
        refused = [answer for status, answer in call["responses"].items() if status >= "400"]
        assert {"400", "401", "403", "404", "422", "500"} <= set(call["responses"])
        assert all(list(answer["content"]) == [REGISTRY_MEDIA] for answer in refused)
        return
    problems = {name for answer in call["responses"].values() for name in _problems(answer)}
    assert {"bad-request", "internal-error"} <= problems <= set(KINDS)
    assert call.get("security") == [] or {"not-authenticated", "too-many-requests"} <= problems


def _problems(answer: dict[str, Any]) -> list[str]:
    return list(answer.get("content", {}).get(MEDIA_TYPE, {}).get("examples", ()))


@pytest.mark.parametrize(("path", "method", "call"), CALLS)
def test_examples_keep_their_schemas(path: str, method: str, call: dict[str, Any]) -> None:
    parts = [call.get("requestBody", {}), *call["responses"].values()]
    for content in (content for part in parts for content in part.get("content", {}).values()):
        for example in content.get("examples", {}).values():
            validator(content["schema"]).validate(example["value"])
    for parameter in call["parameters"]:
        if "example" in parameter and parameter["schema"].get("type") != "boolean":
            validator(parameter["schema"]).validate(parameter["example"])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: f"{one.call}-{one.title}")
def test_examples_name_parameters_that_exist(sample: Sample) -> None:
    [call] = [one.values[2] for one in CALLS if one.id == sample.call]
    known = {(one["in"], one["name"]) for one in call["parameters"]}  # type: ignore[index, call-overload]
    given = {("path", name) for name in sample.path} | {("query", name) for name in sample.query}
    given |= {("header", name) for name in sample.headers if name != "Accept"}
    assert given <= known
    assert {name for place, name in known if place == "path"} == set(sample.path)


def test_every_field_has_a_meaning() -> None:
    missing = [
        f"{name}.{field}"
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for field, one in schema["properties"].items()
        if not one.get("description")
    ]
    assert missing == []


def test_the_document_and_its_page_are_open() -> None:
    """They say nothing about the cluster, and load nothing from elsewhere."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("hidden")
            answer = await found.get("/openapi.json")
            assert answer.status_code == 200 and answer.json() == json.loads(json.dumps(DOCUMENT))
            assert "hidden" not in answer.text and found.services.state.cluster_id not in answer.text
            page = await found.get("/docs")
            assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
            assert "default-src 'none'" in page.headers["content-security-policy"]
            for name, media in FILES.items():
                part = await found.get(f"/docs/{name}")
                assert part.status_code == 200 and part.headers["content-type"].startswith(media)
                assert f"/docs/{name}" in page.text
                text = part.text.replace(SVG, "")
                assert "http://" not in text and "https://" not in text and "innerHTML" not in text
            assert "<script>" not in page.text and "http" not in page.text.replace("HTTP", "")
            for missing in ("/docs/other.js", "/docs/index.html", "/docs/..%2Fdocument.py", "/docs/%2e%2e/document.py"):
                assert (await found.get(missing)).status_code in (401, 404), missing

    asyncio.run(story())
