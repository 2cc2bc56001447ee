"""Options of every command that connects to brokers: TLS and log-in.

A command gets them by registration through `connecting`; `open_client` then makes clients with them.
"""

from __future__ import annotations

import functools
import inspect
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import ConfigError, HeadwaterError

if TYPE_CHECKING:
    from headwater.client.client import Client
    from headwater.client.security import ClientSecurity
    from headwater.lake.finding import SchemaFinder

DEFAULT_MECHANISM = "SCRAM-SHA-512"
DEFAULT_REGISTRY = "http://127.0.0.1:8081"
RegistryOption = Annotated[
    str,
    typer.Option(
        "--registry", metavar="URL", help="The schema registry: a gateway, or another one with Confluent's API."
    ),
]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_OPTIONS: dict[str, Any] = {
    "user": Annotated[str | None, typer.Option("--user", metavar="NAME", help="User to log in as.")],
    "password_file": Annotated[
        str | None,
        typer.Option(
            "--password-file", metavar="FILE", help="File with the password; without it the command asks for it."
        ),
    ],
    "token_file": Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="File with a token for OAUTHBEARER.")
    ],
    "mechanism": Annotated[
        str | None, typer.Option("--mechanism", metavar="NAME", help=f"SASL mechanism; by default {DEFAULT_MECHANISM}.")
    ],
    "tls": Annotated[bool, typer.Option("--tls", help="Use TLS with the issuers that the machine trusts.")],
    "tls_ca": Annotated[
        str | None, typer.Option("--tls-ca", metavar="FILE", help="Use TLS with the issuers in this file.")
    ],
    "tls_cert": Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="File with a client certificate.")
    ],
    "tls_key": Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="File with its key.")],
    "client_config": Annotated[
        str | None,
        typer.Option(
            "--client-config", metavar="FILE", help="File with all of this as properties, under librdkafka's names."
        ),
    ],
}
_chosen: ContextVar[ClientSecurity | None] = ContextVar("security", default=None)


def connecting(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options to connect."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        from headwater.cli.common import fail

        given = {name: kwargs.pop(name, None) for name in _OPTIONS}
        try:
            _chosen.set(_security(given))
        except HeadwaterError as error:
            fail(error)
        command(*args, **kwargs)

    own = inspect.signature(command, eval_str=True)
    extra = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "tls" else None, annotation=annotation
        )
        for name, annotation in _OPTIONS.items()
    ]
    wrapped.__signature__ = own.replace(parameters=[*own.parameters.values(), *extra])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {
        **{name: parameter.annotation for name, parameter in own.parameters.items()},
        **_OPTIONS,
        "return": None,
    }
    return wrapped


def open_client(bootstrap: str) -> Client:
    """A client with the options of the command."""
    from headwater.client.client import Client, ClientSettings
    from headwater.client.security import ClientSecurity

    return Client(bootstrap, settings=ClientSettings(security=_chosen.get() or ClientSecurity()))


@asynccontextmanager
async def open_finder(url: str) -> AsyncIterator[SchemaFinder]:
    """Schemas of a registry. The user and the certificates of the command are used there too."""
    from urllib.parse import urlsplit

    from headwater.client.security import ClientSecurity
    from headwater.clock import SystemClock
    from headwater.lake.external_registry import ExternalRegistry
    from headwater.lake.finding import SchemaFinder
    from headwater.settings.schema_registry import SchemaRegistry, check_schema_registry
    from headwater.threads import Threads

    own = _chosen.get() or ClientSecurity()
    settings = SchemaRegistry(url=url, ca=own.ca, certificate=own.certificate, key=own.key)
    try:
        check_schema_registry(settings)
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"--registry {url!r} is not http://HOST:PORT or https://HOST:PORT") from None
    except ConfigError as error:
        raise ConfigError(f"--registry {url!r}: {error}") from None
    login = ""
    if own.token:
        login = f"Bearer {own.token}"
    elif own.user:
        login = "Basic " + b64encode(f"{own.user}:{own.password}".encode()).decode()
    if login and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ConfigError(f"--registry {url} would get a password or token unencrypted: use https://")
    threads = Threads(2, "registry")
    try:
        clock = SystemClock()
        registry = ExternalRegistry(settings, threads.run, clock, authorization=login)
        yield SchemaFinder(registry, clock, threads.run, near=False)
    finally:
        await threads.close()


def _security(given: dict[str, Any]) -> ClientSecurity | None:
    if not any(given.values()):
        return None
    from headwater.client.security import ClientSecurity, from_properties, read_properties, read_secret

    if given["client_config"]:
        if sum(bool(value) for value in given.values()) > 1:
            raise ConfigError("--client-config cannot be combined with other options to connect")
        return from_properties(read_properties(given["client_config"]))
    user, token = given["user"], given["token_file"]
    mechanism = (given["mechanism"] or ("OAUTHBEARER" if token else DEFAULT_MECHANISM if user else "")).upper()
    return ClientSecurity(
        tls=bool(given["tls"] or given["tls_ca"] or given["tls_cert"]),
        ca=given["tls_ca"] or "",
        certificate=given["tls_cert"] or "",
        key=given["tls_key"] or "",
        mechanism=mechanism,
        user=user or "",
        password=password_of(given["password_file"], f"Password of {user}") if user else "",
        token=read_secret(token) if token else "",
    )


def password_of(file: str | None, prompt: str, *, confirm: bool = False) -> str:
    """A password from a file or from the terminal."""
    from headwater.client.security import read_secret

    if file:
        return read_secret(file)
    if not sys.stdin.isatty():
        raise ConfigError("there is no password: name a file that contains it, or run the command in a terminal")
    answer: str = typer.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True)
    return answer
