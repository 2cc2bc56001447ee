"""Errors over HTTP: every error of the tree has a kind, every kind a stable name, a page and a section in the docs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import errors
from headwater.errors import Exists, HeadwaterError, InvalidName, LimitReached, NotFound
from headwater.gateway import problems
from headwater.gateway.problems import KINDS, Kind, Refusal, document, refusal_of, refusal_with
from tests.support.gateways import gateway

STABLE = {
    "bad-request": 400, "not-authenticated": 401, "not-allowed": 403, "not-found": 404, "method-not-allowed": 405,
    "not-acceptable": 406, "request-timeout": 408, "conflict": 409, "already-exists": 409, "too-large": 413,
    "unsupported-media-type": 415, "unprocessable": 422, "too-many-requests": 429, "head-too-large": 431,
    "internal-error": 500, "damaged": 500, "overloaded": 429, "unavailable": 503, "keys-full": 503,
    "outcome-unknown": 504, "store-full": 507, "other-origin": 403, "other-host": 421,
    "offset-out-of-range": 416, "mirrored": 409,
}  # fmt: skip
"""What clients rely on. A name may be added; none may change or go."""


def test_names_never_change() -> None:
    assert {name: KINDS[name].status for name in STABLE} == STABLE


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (errors.NotFound("x"), "not-found"),
        (NotFound("x"), "not-found"),
        (Exists("x"), "already-exists"),
        (InvalidName("x"), "bad-request"),
        (LimitReached("x"), "unprocessable"),
        (errors.TooLarge("x"), "too-large"),
        (errors.OpensTooLarge("x"), "too-large"),
        (errors.CorruptBatch("x"), "bad-request"),
        (errors.StoreFull("x"), "store-full"),
        (errors.StoreUnavailable("x"), "unavailable"),
        (errors.OutcomeUnknown("x"), "outcome-unknown"),
        (errors.Overloaded("x"), "overloaded"),
        (errors.NotReady("x"), "unavailable"),
        (errors.EpochLost("x"), "unavailable"),
        (errors.Damaged("x"), "damaged"),
        (errors.Halted("x"), "internal-error"),
        (errors.NotAuthenticated("who?"), "not-authenticated"),
        (errors.TooOften("later"), "too-many-requests"),
        (RuntimeError("a secret"), "internal-error"),
    ],
)
def test_the_kind_of_an_error(error: BaseException, name: str) -> None:
    assert refusal_of(error).kind.name == name


def every_error(kind: type[HeadwaterError] = HeadwaterError) -> Iterator[type[HeadwaterError]]:
    for derived in kind.__subclasses__():
        yield derived
        yield from every_error(derived)


def test_no_error_to_mend_is_blamed_on_the_gateway() -> None:
    """Errors that the caller mends have a status below 500, errors to retry have `Retry-After`."""
    for kind in [k for k in every_error() if k.__module__ == "headwater.errors"]:
        error = errors.SchemaRefused(errors.SchemaReason.BAD_MODE, "x") if kind is errors.SchemaRefused else kind("x")
        found = refusal_of(error)
        if kind.action == "fix":
            assert found.kind.status < 500, kind
        if kind.action == "retry":
            assert found.kind.retry and ("Retry-After", "1") in found.all_headers, kind


def test_words_that_may_be_secret_stay_inside() -> None:
    told = document(refusal_of(RuntimeError("the password is x")))
    assert b"password" not in told.data and told.media_type == "application/problem+json"


def test_a_document() -> None:
    """Further members do not replace those of the standard."""
    refusal = Refusal(problems.CONFLICT, "it moved", more={"present": 7, "status": 200})
    assert json.loads(document(refusal).data) == {
        "type": "/problems/conflict",
        "title": problems.CONFLICT.title,
        "status": 409,
        "detail": "it moved",
        "present": 7,
    }


def test_a_status_that_a_library_chose() -> None:
    assert refusal_with(418, "x").kind is problems.BAD_REQUEST
    assert refusal_with(502, "x").kind is problems.INTERNAL
    assert refusal_with(405, "x", headers=(("Allow", "GET"),)).all_headers == (("Allow", "GET"),)


def test_two_kinds_of_one_name() -> None:
    with pytest.raises(ValueError, match="conflict"):
        Kind("conflict", 400, "another", "meaning")


def test_every_kind_has_a_page_and_a_section() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "http.md").read_text()

    async def story() -> None:
        async with gateway() as found:
            for kind in KINDS.values():
                page = await found.get(f"/problems/{kind.name}")
                assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
                assert kind.title in page.text and f"\n### {kind.name}\n" in text
            unknown = await found.get("/problems/none")
            assert unknown.status_code == 404 and unknown.json()["type"] == "/problems/not-found"

    asyncio.run(story())
