"""The shell at a terminal: a prompt with history and completion, and a pager for long results."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.common import complain
from headwater.cli.sql.asking import Asker
from headwater.cli.sql.completing import KnownColumns, KnownTopics, candidates, quoted, with_fields
from headwater.cli.sql.progress import Progress
from headwater.cli.sql.shell import WORDS, Leave, Shell, word_of
from headwater.cli.sql.statements import is_finished
from headwater.cli.sql.wishes import Wish
from headwater.clock import SystemClock
from headwater.errors import HeadwaterError
from headwater.log.segment.schema import segment_schema
from headwater.modes import PRIVATE, PRIVATE_DIRECTORY, set_mode

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    from headwater.sdk.remote import RemoteConnection

MAX_HISTORY = 1 << 20
"""Bytes of the history. When it has more, the older half is dropped."""
MAX_CELL = 120
"""Characters of a cell of a table at a terminal."""
PAGER = "less -SRFX"
PROMPT, MORE = "headwater> ", "       ...> "


def talk(cluster: RemoteConnection, wish: Wish) -> None:
    """Read and run until the user leaves. An error of a statement is printed, and the shell goes on."""
    wish.most = MAX_CELL
    progress = Progress(cluster.look, _note) if sys.stderr.isatty() else None
    shell = Shell(Asker(cluster, _put, page_lines, watch=progress), wish, print, _point)
    cluster.look(
        "/v1/tables", {"limit": 1}
    )  # a gateway that is down, or refuses the user, is noticed before the prompt
    session = _session(cluster)
    print(f"Connected to {cluster.url}. \\? for help, \\q to leave.")
    while True:
        try:
            text = session.prompt(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            shell.run(text)
        except Leave:
            return
        except KeyboardInterrupt:
            complain("the query was cancelled")
        except HeadwaterError as error:
            complain(error)


def history_file(environment: dict[str, str] | None = None) -> Path:
    """Where the history is: in the user's state directory, readable by the user only."""
    given = os.environ if environment is None else environment
    root = Path(given.get("XDG_STATE_HOME") or Path(given.get("HOME") or Path.home(), ".local", "state"))
    directory = root / "headwater"
    directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    file = directory / "sql_history"
    if file.exists() and file.stat().st_size > MAX_HISTORY:
        kept = file.read_bytes()[-MAX_HISTORY // 2 :]
        file.write_bytes(kept[kept.find(b"\n#") + 1 :])
    file.touch(PRIVATE)
    set_mode(file, PRIVATE)
    return file


def _session(cluster: RemoteConnection) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory

    history: History
    try:
        history = FileHistory(str(history_file()))
    except OSError as error:
        complain(f"there is no history: {error}")
        history = InMemoryHistory()

    def goes_on() -> bool:
        text = get_app().current_buffer.text
        return not is_finished(text) and word_of(text) not in WORDS

    unfinished = Condition(goes_on)
    return PromptSession(
        history=history,
        completer=_completer(cluster),
        complete_in_thread=True,
        complete_while_typing=False,
        multiline=unfinished,
        prompt_continuation=MORE,
        enable_history_search=False,
    )


def _completer(cluster: RemoteConnection) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    def look(topic: str) -> list[str]:
        with cluster.sql(f"SELECT * FROM {quoted(topic)} LIMIT 0") as result:
            return with_fields(result.schema)

    topics, typed = KnownTopics(cluster.topics, SystemClock()), KnownColumns(look, SystemClock())
    columns = segment_schema().names

    class SqlCompleter(Completer):
        """Completes what `candidates` knows."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            names = topics.names()
            own = typed.names(document.text, names)
            word, found = candidates(document.text_before_cursor, names, [*columns, *own])
            return [Completion(one, start_position=-len(word)) for one in found]

    return SqlCompleter()


def _note(text: str) -> None:
    """Write something that is not part of a result."""
    sys.stderr.write(text)
    sys.stderr.flush()


def _point(lines: list[str]) -> None:
    _note("".join(f"{line}\n" for line in lines))


def _put(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def page_lines(lines: Iterator[str]) -> None:
    """Print lines. If there are more than the terminal shows, a pager gets them."""
    size = shutil.get_terminal_size()
    first = list(itertools.islice(lines, size.lines - 1))
    if len(first) < size.lines - 1 or not sys.stdout.isatty():
        for group in (first, lines):
            for line in group:
                print(line)
        return
    command = shlex.split(os.environ.get("PAGER") or PAGER)
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, errors="replace")
    except OSError:
        for group in (first, lines):
            for line in group:
                print(line)
        return
    _feed(pager, first, lines)


def _feed(pager: subprocess.Popen[str], first: list[str], lines: Iterator[str]) -> None:
    """Give lines to a pager until it has them all, or the user has seen enough."""
    assert pager.stdin is not None
    try:
        for group in (first, lines):
            for line in group:
                pager.stdin.write(line + "\n")
        pager.stdin.close()
    except BrokenPipeError:
        pass  # the user has left the pager
    finally:
        while True:
            try:
                pager.wait()
                break
            except KeyboardInterrupt:
                continue  # it is the pager's own business
