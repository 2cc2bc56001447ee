"""Schemas of an external registry, over Confluent's HTTP API. Answers are checked; nothing else is believed.

Only an answer with one of the registry's own error codes says that there is no such schema. Everything else that is not
a schema means that the registry cannot be asked: a wrong address or a proxy must not turn records into failures.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from headwater.client.security import read_secret
from headwater.clock import Clock
from headwater.errors import ConfigError, RegistryUnavailable
from headwater.lake.registries import Registered, names_of
from headwater.replica.schema_sources import LATEST
from headwater.schemas.typing import SUBJECT, KnownSchema
from headwater.settings.schema_registry import SchemaRegistry
from headwater.threads import Offload

T = TypeVar("T")
MAX_REFERENCES = 1_000
"""Schemas that one schema refers to, also by way of others."""
PAUSE_SECONDS = 0.2
"""The pause before a request is repeated; twice as long before the next."""
PIECE_BYTES = 64 << 10
_ABSENT = {40401, 40402, 40403}
"""Codes of Confluent's API: no such subject, version, schema."""


class Reference(msgspec.Struct, frozen=True):
    """What a schema refers to."""

    name: str
    subject: str
    version: int


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """A schema, as the registry tells it."""

    schema: str
    schema_type: str = "AVRO"
    references: list[Reference] = []
    id: int = 0
    """0 if the answer does not say it."""
    version: int = 0


class Use(msgspec.Struct, frozen=True):
    """A version of a subject that has a schema."""

    subject: str
    version: int


class ExternalRegistry:
    """A registry with Confluent's API."""

    def __init__(
        self,
        settings: SchemaRegistry,
        offload: Offload,
        clock: Clock,
        environment: Mapping[str, str] = os.environ,
        *,
        authorization: str = "",
    ) -> None:
        """`offload` runs requests, which block. `authorization` is sent instead of what the settings say."""
        self._settings = settings
        self._given = authorization
        self._offload = offload
        self._clock = clock
        self._environment = environment
        parts = urlsplit(settings.url)
        self._tls = parts.scheme == "https"
        self._host, self._port, self._base = parts.hostname or "", parts.port, parts.path.rstrip("/")

    def __repr__(self) -> str:
        return f"<ExternalRegistry at {self._settings.url}>"

    async def schema(self, name: str) -> KnownSchema | None:
        if name.startswith(SUBJECT):
            path = f"/subjects/{quote(name.removeprefix(SUBJECT), safe='')}/versions/latest"
        else:
            path = f"/schemas/ids/{name}" if name.isdecimal() else f"/schemas/guids/{name}"
        found = await self._ask(path, Answer)
        return await self._whole(found, name) if found is not None else None

    async def version(self, subject: str, number: int = LATEST) -> Registered | None:
        """A version of a subject, or its newest one."""
        which = "latest" if number == LATEST else str(number)
        found = await self._ask(f"/subjects/{quote(subject, safe='')}/versions/{which}", Answer)
        if found is None:
            return None
        if not found.id or not found.version:
            raise RegistryUnavailable("the registry tells neither the id nor the version of a schema")
        schema = await self._whole(found, str(found.id))
        return Registered(subject, found.version, found.id, schema) if schema is not None else None

    async def uses(self, schema_id: int) -> list[tuple[str, int]]:
        """The subjects and versions that have a schema."""
        found = await self._ask(f"/schemas/ids/{schema_id}/versions", list[Use])
        return [(one.subject, one.version) for one in found or ()]

    async def _whole(self, found: Answer, name: str) -> KnownSchema | None:
        """A schema with all that it refers to. None if something of that is missing."""
        texts: dict[str, str] = {}
        if not await self._gather(found.references, texts):
            return None
        return KnownSchema(names_of(name, found.id), found.schema_type, found.schema, tuple(texts.items()))

    async def _gather(self, references: list[Reference], texts: dict[str, str]) -> bool:
        """Add the texts of all that is referred to, each behind those that it needs itself. False if one is missing."""
        path: list[tuple[Reference | None, str, list[Reference]]] = [(None, "", list(references))]
        seen: set[str] = set()
        while path:
            own, text, waiting = path[-1]
            if not waiting:
                path.pop()
                if own is not None:
                    texts[own.name] = text
                continue
            reference = waiting.pop(0)
            if reference.name in seen:
                continue
            seen.add(reference.name)
            if len(seen) > MAX_REFERENCES:
                raise RegistryUnavailable(f"a schema refers to more than {MAX_REFERENCES} others")
            subject = quote(reference.subject, safe="")
            found = await self._ask(f"/subjects/{subject}/versions/{reference.version}?deleted=true", Answer)
            if found is None:
                return False
            path.append((reference, found.schema, list(found.references)))
        return True

    async def _ask(self, path: str, kind: type[T]) -> T | None:
        """Ask, and ask again after a failure. None if the registry has no such schema."""
        pause = PAUSE_SECONDS
        for left in range(self._settings.retries, -1, -1):
            try:
                status, body = await self._offload(self._get, path)
                return _read(status, body, kind)
            except RegistryUnavailable:
                if not left:
                    raise
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("the last try raises or returns")

    def _get(self, path: str) -> tuple[int, bytes]:
        """Send a request and read the answer. Blocks."""
        seconds = self._settings.timeout_ms / 1000
        deadline = self._clock.monotonic() + seconds
        try:
            headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", **self._authorization()}
            connection = self._connection(seconds)
        except (ConfigError, OSError, ValueError) as error:
            raise RegistryUnavailable(f"{self._settings.url}: {error}") from error
        with contextlib.closing(connection):
            try:
                connection.request("GET", self._base + path, headers=headers)
                with connection.getresponse() as answer:
                    return answer.status, self._body(answer, deadline)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = str(error) or type(error).__name__
                raise RegistryUnavailable(f"{self._settings.url} does not answer: {reason}") from error

    def _body(self, answer: http.client.HTTPResponse, deadline: float) -> bytes:
        pieces, size = [], 0
        while piece := answer.read1(PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > self._settings.answer_bytes:
                raise RegistryUnavailable(f"{self._settings.url} answers more than {self._settings.answer_bytes} bytes")
            if self._clock.monotonic() > deadline:
                raise TimeoutError("it takes too long")
        return b"".join(pieces)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        own = self._settings
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        context = ssl.create_default_context(cafile=own.ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if own.certificate:
            context.load_cert_chain(own.certificate, own.key)
        return http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=context)

    def _authorization(self) -> dict[str, str]:
        """The header with the user or the token. Secrets are read anew each time, because they change."""
        own = self._settings
        if self._given:
            return {"Authorization": self._given}
        if own.token_file or own.token_env:
            return {"Authorization": f"Bearer {self._secret(own.token_file, own.token_env)}"}
        if own.user:
            pair = f"{own.user}:{self._secret(own.password_file, own.password_env)}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}

    def _secret(self, file: str, variable: str) -> str:
        if file:
            return read_secret(file)
        if not self._environment.get(variable):
            raise ConfigError(f"the variable {variable} of the environment is not set")
        return self._environment[variable]


def _read(status: int, body: bytes, kind: type[T]) -> T | None:
    """What an answer tells; None if the registry says that there is no such schema."""
    if status == 200:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise RegistryUnavailable(f"the registry answers no schema: {error}") from error
    code, message = _refusal(body)
    if status == 404 and code in _ABSENT:
        return None
    if status in (401, 403):
        raise RegistryUnavailable(f"the registry refuses the user or the token (status {status})")
    raise RegistryUnavailable(f"the registry answers status {status}{f', {message}' if message else ''}")


def _refusal(body: bytes) -> tuple[int, str]:
    """Code and message of a refusal; 0 if it is none of the registry's."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        return 0, ""
    if not isinstance(told, dict):
        return 0, ""
    code, message = told.get("error_code"), told.get("message")
    return (code if isinstance(code, int) else 0), (message[:200] if isinstance(message, str) else "")
