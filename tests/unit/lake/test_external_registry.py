"""Schemas of an external registry: ids, GUIDs, subjects, references; and everything that is no answer."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.clock import SystemClock
from headwater.errors import RegistryUnavailable
from headwater.lake.external_registry import ExternalRegistry
from headwater.lake.registries import Registered
from headwater.schemas.typing import KnownSchema
from headwater.settings.schema_registry import SchemaRegistry
from headwater.threads import inline
from tests.support.certificates import issue
from tests.support.promise import promise
from tests.support.registries import FakeRegistry, serving, with_certificate

PROMISES = ("T6",)

GUID = "00000000-0000-0000-0000-00000000000a"


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with serving() as server:
        yield server


def ask(fake: FakeRegistry, name: str, **settings: Any) -> KnownSchema | None:
    own = SchemaRegistry(url=fake.url, **{"retries": 0} | settings)
    return asyncio.run(ExternalRegistry(own, inline, SystemClock(), {"SECRET": "s3"}).schema(name))


def test_ids_guids_and_subjects(fake: FakeRegistry) -> None:
    fake.answers["/registry/schemas/ids/7"] = (200, {"schema": '"long"', "more": 1})
    fake.answers[f"/registry/schemas/guids/{GUID}"] = (200, {"schema": "{}", "schemaType": "JSON"})
    fake.answers["/registry/subjects/a%2Fb/versions/latest"] = (200, {"schema": '"int"', "version": 3, "id": 9})
    assert ask(fake, "7") == KnownSchema(("7",), "AVRO", '"long"', ())
    assert ask(fake, GUID) == KnownSchema((GUID,), "JSON", "{}", ())
    assert ask(fake, "subject:a/b") == KnownSchema(("subject:a/b", "9"), "AVRO", '"int"', ())
    assert ask(fake, "8") is None
    assert fake.asked[0] == ("/registry/schemas/ids/7", "")


def test_references_come_before_those_that_need_them(fake: FakeRegistry) -> None:
    def refers(name: str, subject: str) -> dict[str, Any]:
        return {"name": name, "subject": subject, "version": 2}

    schemas = "/registry/subjects/{}/versions/2?deleted=true"
    fake.answers["/registry/schemas/ids/1"] = (
        200,
        {"schema": "top", "references": [refers("b", "B"), refers("c", "C")]},
    )
    fake.answers[schemas.format("B")] = (200, {"schema": "of b", "references": [refers("c", "C")]})
    fake.answers[schemas.format("C")] = (200, {"schema": "of c"})
    found = ask(fake, "1")
    assert found is not None and found.references == (("c", "of c"), ("b", "of b"))
    del fake.answers[schemas.format("C")]
    assert ask(fake, "1") is None


def test_users_and_tokens(fake: FakeRegistry, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("t0\n")
    ask(fake, "1", user="u", password_env="SECRET")
    ask(fake, "1", token_file=str(secret))
    assert [header for _, header in fake.asked] == [f"Basic {base64.b64encode(b'u:s3').decode()}", "Bearer t0"]
    with pytest.raises(RegistryUnavailable, match="NONE of the environment is not set"):
        ask(fake, "1", token_env="NONE")


@promise("T6")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, b"<html>"), "status 404"),
        ((404, {"error_code": 404}), "status 404"),
        ((200, b"<html>"), "answers no schema"),
        ((200, {"schema": 5}), "answers no schema"),
        ((401, {}), "refuses the user"),
        ((500, {"error_code": 50001, "message": "broken"}), "status 500, broken"),
        ((302, []), "status 302"),
        ((200, {"schema": "x" * 2000}), "more than 1000 bytes"),
    ],
)
def test_what_is_no_answer(fake: FakeRegistry, answer: tuple[int, Any], words: str) -> None:
    """None of these makes a record a failure: the registry cannot be asked."""
    fake.answers["/registry/schemas/ids/1"] = answer
    with pytest.raises(RegistryUnavailable, match=words):
        ask(fake, "1", answer_bytes=1000)


def test_requests_are_repeated(fake: FakeRegistry) -> None:
    fake.answers["/registry/schemas/ids/1"] = (200, {"schema": '"long"'})
    fake.failures = 1
    assert ask(fake, "1", retries=1) is not None
    assert len(fake.asked) == 2


@promise("T6")
def test_tls(tmp_path: Path) -> None:
    """A registry with a certificate of its own issuer, for clients with a certificate, a password or a token."""
    ours, theirs = issue(tmp_path, "ours"), issue(tmp_path, "theirs")
    server, client = issue(tmp_path, "registry", ours), issue(tmp_path, "client", ours)
    stranger = issue(tmp_path, "stranger", theirs)
    ca = {"ca": str(ours.certificate)}
    known = {"certificate": str(client.certificate), "key": str(client.key)}
    with serving(with_certificate(server)) as plain:
        plain.has(1, '"long"')
        plain.wanted = f"Basic {base64.b64encode(b'u:s3').decode()}"
        assert ask(plain, "1", user="u", password_env="SECRET", **ca) is not None
        plain.wanted = "Bearer s3"
        assert ask(plain, "1", token_env="SECRET", **ca) is not None
        with pytest.raises(RegistryUnavailable, match="refuses the user or the token"):
            ask(plain, "1", **ca)
        count = len(plain.asked)
        for more in ({}, {"ca": str(theirs.certificate)}):
            with pytest.raises(RegistryUnavailable, match="certificate verify failed"):
                ask(plain, "1", token_env="SECRET", **more)
        with pytest.raises(RegistryUnavailable, match="No such file"):
            ask(plain, "1", ca=str(tmp_path / "none.pem"))
        assert len(plain.asked) == count, "nobody else gets the token"
    with serving(with_certificate(server, clients_of=ours)) as strict:
        strict.has(1, '"long"')
        assert ask(strict, "1", **ca, **known) is not None
        others = {"certificate": str(stranger.certificate), "key": str(stranger.key)}
        for more in ({}, others):
            with pytest.raises(RegistryUnavailable, match="does not answer"):
                ask(strict, "1", **ca, **more)
        assert len(strict.asked) == 1


def test_nobody_there() -> None:
    own = SchemaRegistry(url="http://127.0.0.1:1", retries=0)
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        asyncio.run(ExternalRegistry(own, inline, SystemClock()).schema("1"))


def test_versions_and_uses(fake: FakeRegistry) -> None:
    """For those that write records: the id and the number of a version, and where a schema is used."""
    whole = {"subject": "s", "version": 2, "id": 7, "schema": '"long"'}
    fake.answers["/registry/subjects/s/versions/latest"] = (200, whole)
    fake.answers["/registry/subjects/s/versions/2"] = (200, whole)
    fake.answers["/registry/subjects/odd/versions/latest"] = (200, {"schema": '"long"'})
    fake.answers["/registry/schemas/ids/7/versions"] = (200, [{"subject": "s", "version": 2}])
    own = SchemaRegistry(url=fake.url, retries=0)
    registry = ExternalRegistry(own, inline, SystemClock(), authorization="Bearer t")
    known = KnownSchema(("7",), "AVRO", '"long"', ())
    for number in (-1, 2):
        assert asyncio.run(registry.version("s", number)) == Registered("s", 2, 7, known)
    assert asyncio.run(registry.version("s", 3)) is None and asyncio.run(registry.version("none")) is None
    assert asyncio.run(registry.uses(7)) == [("s", 2)] and asyncio.run(registry.uses(8)) == []
    assert {login for _, login in fake.asked} == {"Bearer t"}
    found = asyncio.run(registry.schema("subject:s"))
    assert found is not None and found.names == ("subject:s", "7")
    with pytest.raises(RegistryUnavailable, match="neither the id nor the version"):
        asyncio.run(registry.version("odd"))
