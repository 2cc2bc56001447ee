"""What the commands share: options, and output as text or JSON."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
import traceback
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import Enum
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from headwater.cli.errors import INPUT, INTERRUPTED, OK, OTHER, exit_code
from headwater.clock import SystemClock
from headwater.errors import ConfigError, HeadwaterError
from headwater.extras import missing
from headwater.ops.visible import visible

MAX_PAIRS = 1_000
_WIDE = 10_000
"""Columns of output that is not a terminal, so that no line is wrapped."""

T = TypeVar("T")


class Output(Enum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


BootstrapOption = Annotated[
    str, typer.Option("--bootstrap", metavar="HOST:PORT", help="Addresses of brokers, separated by commas.")
]
OutputOption = Annotated[Output, typer.Option("--output", help="text for people, json for programs.")]
AgeOption = Annotated[
    str | None, typer.Option("--older-than", metavar="DURATION", help="Age such as 90s, 30m, 12h or 7d.")
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(rf"(\d{{1,15}})({'|'.join(_UNITS)})")


# --- running and failing -------------------------------------------------------------------------------


def complain(text: object) -> None:
    """Print one line on standard error."""
    if isinstance(text, OSError) and text.strerror:
        text = f"{text.filename}: {text.strerror}" if text.filename else text.strerror
    print(f"headwater: {visible(' '.join(str(text).split()))}", file=sys.stderr)


def fail(error: BaseException) -> NoReturn:
    """Print an error and exit with its code."""
    code = exit_code(error)
    if code != INTERRUPTED:
        complain(error)
    raise typer.Exit(code)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine of a command. Its errors become a line and an exit code."""
    try:
        return asyncio.run(_until_terminated(main))
    except BrokenPipeError:
        # The reader of our output has closed it, as `head` does.
        _drop_output()
        raise typer.Exit(OK) from None
    except (HeadwaterError, OSError, KeyboardInterrupt, asyncio.CancelledError) as error:
        fail(error)


def serve_forever(main: Coroutine[Any, Any, None]) -> None:
    """Run a server on the quicker event loop. Its errors go to the caller."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def call_plainly(main: Callable[[], T]) -> T:
    """Call the function of a command that has no event loop. A reader that has closed our output ends it quietly."""
    try:
        return main()
    except BrokenPipeError:
        _drop_output()
        raise typer.Exit(OK) from None


async def _until_terminated(main: Coroutine[Any, Any, T]) -> T:
    """Let SIGTERM end a command like Ctrl-C: by cancellation, so that it can clean up."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await main
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _drop_output() -> None:
    """Keep the interpreter from flushing into the closed pipe when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        pass  # standard output is not a file here, so nothing will be flushed


def call(app: Callable[..., object], arguments: Sequence[str] | None = None) -> int:
    """Run an app and return its exit code. Typer's own code for wrong usage, 2, means a Kafka error here."""
    try:
        result = app(arguments, prog_name="headwater", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except HeadwaterError as error:
        complain(error)
        return exit_code(error)
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever it is, it needs an exit code
        if lacking := missing(error):
            complain(lacking)
            return exit_code(lacking)
        if isinstance(error, OSError) and error.filename:  # a file or directory, which the user may have named
            complain(error)
            return exit_code(error)
        if not hasattr(error, "exit_code"):
            traceback.print_exc()
            return OTHER
        _usage(error.format_message() if hasattr(error, "format_message") else str(error))
        return INPUT
    return result if isinstance(result, int) else OK


def _usage(message: str) -> None:
    """Print Typer's message: a line, or a help page for a command without its arguments."""
    if "\n" in message:
        print(message, file=sys.stderr)
    else:
        complain(message)


# --- arguments -----------------------------------------------------------------------------------------


def pairs(texts: Iterable[str], what: str) -> list[tuple[str, str]]:
    """`NAME=VALUE` arguments, in order."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"{what} {text!r} does not have the form NAME=VALUE")
        found.append((name, value))
    if len(found) > MAX_PAIRS:
        raise ConfigError(f"{what} is given {len(found)} times; the limit is {MAX_PAIRS}")
    return found


def unique_pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """`NAME=VALUE` arguments, each name once."""
    found: dict[str, str] = {}
    for name, value in pairs(texts, what):
        if name in found:
            raise ConfigError(f"{what} {name!r} is given twice")
        found[name] = value
    return found


def parse_duration(text: str) -> int:
    """The milliseconds in `90s`, `30m`, `12h` or `7d`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not a duration: give a number and ms, s, m, h or d")
    return int(match[1]) * _UNITS[match[2]]


# --- output --------------------------------------------------------------------------------------------


def put(data: bytes) -> None:
    """Write bytes to standard output unchanged."""
    sys.stdout.buffer.write(data)


def flush() -> None:
    """Flush standard output."""
    sys.stdout.buffer.flush()


def put_json(document: object) -> None:
    """Write one JSON document on a line of its own."""
    import msgspec

    put(msgspec.json.encode(document) + b"\n")


def put_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write columns without a frame, so that `awk` can read them. A terminal obeys nothing in them."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ignore")
    for row in rows:
        table.add_row(*(visible(str(cell)) for cell in row))
    if sys.stdout.isatty():
        Console(file=sys.stdout, highlight=False, markup=False).print(table)
        return
    page = Console(file=io.StringIO(), width=_WIDE, color_system=None, highlight=False, markup=False)
    with page.capture() as lines:
        page.print(table)
    put("".join(f"{line.rstrip()}\n" for line in lines.get().splitlines()).encode())


def put_list(columns: Sequence[str], rows: Sequence[Sequence[object]], kind: str) -> None:
    """Write a list, or say on standard error that it is empty, so that a program reads no lines."""
    if rows:
        put_table(columns, rows)
    else:
        print(f"there are no {kind}", file=sys.stderr)


def put_done(output: Output, kind: str, name: str, what: str) -> None:
    """Report what was done to a resource."""
    if output is Output.JSON:
        put_json({"name": name, "result": what})
    else:
        put(f"{kind} {name} {what}\n".encode())


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as a JSON field: text if they are UTF-8, else base64 and a field that says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: b64encode(data).decode(), f"{name}_encoding": "base64"}


class Progress:
    """Lines on standard error that say how far a command is, about one a second."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._last = float("-inf")

    def __call__(self, state: object) -> None:
        now = self._clock.monotonic()
        if now - self._last >= 1:
            self._last = now
            print(state, file=sys.stderr, flush=True)
