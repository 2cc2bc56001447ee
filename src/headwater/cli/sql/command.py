"""`headwater sql`: its options, and whether there is one statement, a file of them, or a user who types."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import call_plainly, fail, flush, parse_duration, put
from headwater.cli.sql.wishes import BINARY, SqlOutput, Wish, parse_as_of, parse_parameter
from headwater.errors import ConfigError, HeadwaterError
from headwater.query.asking import Engine
from headwater.settings.names import GATEWAY_VARIABLE

if TYPE_CHECKING:
    from headwater.sdk.remote import RemoteConnection

DEFAULT_GATEWAY = "http://127.0.0.1:8081"
TRY_SECONDS = 10.0
"""How long the command tries to reach a gateway, or to get a place for its query."""
MAX_TEXT = 10 << 20
"""Bytes of a file with statements."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sql")(sql)


def sql(
    statement: Annotated[
        str | None, typer.Argument(metavar="STATEMENT", help="Statements, separated by semicolons.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="File with statements; - is standard input.")
    ] = None,
    output: Annotated[
        SqlOutput, typer.Option("--output", help="The form of the result; a table is for people.")
    ] = SqlOutput.TABLE,
    engine: Annotated[Engine, typer.Option("--engine", help="Which engine answers.")] = Engine.AUTO,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="STATE",
            help="An older state of the tables: a version, a tag such as 2026-11-17T22, a time (ISO 8601 or "
            "@milliseconds), or offsets such as 0:17,1:4.",
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Give a query up after 90s, 30m or 12h.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="VALUE",
            help="The value of a `?`, in order: a JSON scalar, else text; repeatable.",
        ),
    ] = None,
    timing: Annotated[bool, typer.Option("--timing", help="Show the time of each query.")] = False,
    gateway: Annotated[
        str, typer.Option("--gateway", metavar="URL", envvar=GATEWAY_VARIABLE, help="URL of a gateway.")
    ] = DEFAULT_GATEWAY,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="User to log in as.")] = None,
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file", metavar="FILE", help="File with the password; without it the command asks for it."
        ),
    ] = None,
    token_file: Annotated[str | None, typer.Option("--token-file", metavar="FILE", help="File with a token.")] = None,
    tls_ca: Annotated[
        str | None, typer.Option("--tls-ca", metavar="FILE", help="File with the issuers of the gateway's certificate.")
    ] = None,
) -> None:
    """Ask topics in SQL, through a gateway. Without a statement it is a shell; \\? there lists its commands.

    Topics are tables. Every record that was acknowledged before a statement is seen by it.
    """
    try:
        wish = Wish(
            output=output,
            engine=str(engine),
            as_of=None if as_of is None else parse_as_of(as_of),
            timeout=None if timeout is None else parse_duration(timeout) / 1000,
            parameters=tuple(parse_parameter(text) for text in parameter or ()),
            timing=timing,
        )
        text = _text(statement, file)
        cluster = _connected(gateway, user, password_file, token_file, tls_ca)
        with cluster:
            if text is None and sys.stdin.isatty():
                _shell(cluster, wish)
            else:
                call_plainly(lambda: _script(cluster, sys.stdin.read(MAX_TEXT) if text is None else text, wish))
    except (HeadwaterError, OSError, UnicodeDecodeError, KeyboardInterrupt) as error:
        fail(
            error if not isinstance(error, UnicodeDecodeError) else ConfigError(f"the statements are no text: {error}")
        )


def _text(statement: str | None, file: str | None) -> str | None:
    if statement is not None and file is not None:
        raise ConfigError("give a statement or --file, not both")
    if file is None or file == "-":
        return statement if file is None else sys.stdin.read(MAX_TEXT)
    if Path(file).stat().st_size > MAX_TEXT:
        raise ConfigError(f"{file} has more than {MAX_TEXT} bytes")
    return Path(file).read_text()


def _connected(
    gateway: str, user: str | None, password_file: str | None, token_file: str | None, ca: str | None
) -> RemoteConnection:
    from headwater.cli.connecting import password_of
    from headwater.client.security import read_secret
    from headwater.sdk.http import Http, Login
    from headwater.sdk.remote import RemoteConnection

    password = password_of(password_file, f"Password of {user}") if user else None
    token = read_secret(token_file) if token_file else None
    return RemoteConnection(Http(gateway, Login(user, password, token, ca), timeout=TRY_SECONDS, waits=False))


def _script(cluster: RemoteConnection, text: str, wish: Wish) -> None:
    """Run statements one after the other, up to the first one that fails. Lines with a backslash are commands."""
    from headwater.cli.sql.asking import Asker
    from headwater.cli.sql.shell import Leave, Shell
    from headwater.cli.sql.statements import statements

    if wish.output in BINARY:
        if len(statements(text)) != 1:
            raise ConfigError(f"--output {wish.output} holds one result: give one statement")
        if sys.stdout.isatty():
            raise ConfigError(f"--output {wish.output} is not for a terminal: redirect it to a file")
    shell = Shell(Asker(cluster, put, put_lines), wish, lambda told: put(f"{told}\n".encode()))
    try:
        for part in parts(text):
            shell.run(part)
            flush()
    except Leave:
        pass
    finally:
        flush()


def parts(text: str) -> Iterator[str]:
    """Statements and commands of a script, in order. A command is a line that begins with a backslash."""
    from headwater.cli.sql.shell import WORDS, word_of
    from headwater.cli.sql.statements import is_empty, is_finished

    held = ""
    for line in text.splitlines(keepends=True):
        if (line.startswith("\\") or word_of(line) in WORDS) and is_empty(held):
            yield line
            continue
        held += line
        if is_finished(held):
            if not is_empty(held):
                yield held
            held = ""
    if not is_empty(held):
        yield held


def put_lines(lines: Iterator[str]) -> None:
    """Print lines."""
    for line in lines:
        put(f"{line}\n".encode("utf-8", "replace"))


def _shell(cluster: RemoteConnection, wish: Wish) -> None:
    from headwater.cli.sql.terminal import talk

    if wish.output in BINARY:
        raise ConfigError(f"--output {wish.output} is not for a shell")
    talk(cluster, wish)
