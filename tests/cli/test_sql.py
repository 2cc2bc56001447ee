"""`headwater sql` as people and scripts use it: its forms, its exit codes, and the shell at a terminal.

The gateway has answers that are written down. `tests/gateway/test_sql.py` asks engines.
"""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from pyarrow import parquet

from harness.patience import Patience, eventually
from headwater.cli import common
from headwater.cli.sql import command
from headwater.errors import NoEngine, QueryLimit
from tests.support.queries import WrittenAnswers, answering

ROWS = pa.record_batch({"user": ["ann", "bob"], "n": [1, None]})
MANY = pa.record_batch({"n": list(range(20_000))})
PROGRAM = """
import signal, sys, typer
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
from headwater.cli import common
from headwater.cli.sql import command
app = typer.Typer(add_completion=False, rich_markup_mode=None)
command.register(app)
sys.exit(common.call(app))
"""


class Output(io.StringIO):
    """Standard output that keeps bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = io.BytesIO()  # type: ignore[misc]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    yield Runner(monkeypatch)


class Runner:
    """Runs the command in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.err = ""

    def __call__(self, url: str, *arguments: str, stdin: str = "") -> tuple[int, bytes]:
        """Exit code and output. `err` has what was complained about."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        command.register(app)
        out, err = Output(), io.StringIO()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            code = common.call(app, ["--gateway", url, *arguments])
        self.err = err.getvalue()
        return code, out.buffer.getvalue()


def test_forms(run: Runner, tmp_path: Path) -> None:
    def story(url: str, written: WrittenAnswers) -> None:
        written.write("s", ROWS)
        assert run(url, "s") == (0, b"user | n\n-----+-----\nann  |    1\nbob  | NULL\n(2 rows)\n")
        assert json.loads(run(url, "s;", "--output", "json")[1])["rows"] == [["ann", 1], ["bob", None]]
        assert run(url, "s", "--output", "ndjson")[1] == b'{"user":"ann","n":1}\n{"user":"bob","n":null}\n'
        assert run(url, "s", "--output", "csv") == (0, b"user,n\nann,1\nbob,\n")
        assert pa.ipc.open_stream(run(url, "s", "--output", "arrow")[1]).read_all() == pa.Table.from_batches([ROWS])
        assert parquet.read_table(io.BytesIO(run(url, "s", "--output", "parquet")[1])).num_rows == 2
        (tmp_path / "file.sql").write_text("s; -- once\n\\x\ns")
        out = run(url, "-f", str(tmp_path / "file.sql"))[1].decode()
        assert "(2 rows)" in out and "-[ row 2 ]-" in out
        assert run(url, "--output", "csv", stdin="s;s;")[1].count(b"ann,1") == 2
        more = ("-p", "5", "-p", "text", "--engine", "duckdb", "--as-of", "7", "--timeout", "9s", "--timing")
        assert b"Time: " in run(url, "s", *more)[1]
        last = written.questions[-1]
        assert last.parameters == (5, "text") and last.engine == "duckdb" and last.as_of.version == 7
        assert last.limits is not None and last.limits.seconds == 9
        code, listed = run(url, stdin="\\d")
        assert code == 0 and listed.decode().splitlines()[2].startswith("orders | 0"), (listed, run.err)

    answering(story)


def test_exit_codes(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 for a statement that cannot be answered, 2 for a gateway that does not answer. A broken result is not 0."""

    def story(url: str, written: WrittenAnswers) -> None:
        written.write("s", ROWS).write("late", *[MANY] * 5, error=QueryLimit("more than 100,000 rows"))
        assert run(url, "s; unknown; s")[0] == 1 and "there is no answer to 'unknown'" in run.err
        assert len(written.questions) == 2  # the third was not asked
        for output in ("csv", "json", "ndjson", "table"):
            assert run(url, "late", "--output", output)[0] == 1 and "more than 100,000 rows" in run.err
        for arguments, words in (
            (("s", "-f", "x"), "not both"),
            (("s;s", "--output", "arrow"), "holds one result"),
            (("s", "--as-of", "never"), "no state"),
            (("s", "--timeout", "soon"), "not a duration"),
            (("s", "--output", "xml"), "xml"),
            (("-f", str(tmp_path / "none.sql")), "none.sql"),
        ):
            assert run(url, *arguments)[0] in (1, 10) and words in run.err, arguments
        monkeypatch.setattr(command, "TRY_SECONDS", 0.1)
        assert run("http://127.0.0.1:1", "s")[0] == 2 and "no gateway answers" in run.err
        written.write("busy", error=NoEngine("every place is taken"))
        assert run(url, "busy")[0] == 2 and "every place is taken" in run.err

    answering(story)


class Terminal:
    """The command at a terminal of its own."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "PAGER": "cat", "PROMPT_TOOLKIT_NO_CPR": "1", **variables}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment,
        )  # fmt: skip
        os.close(slave)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def see(self, words: str) -> str:
        """Wait for words; returns all that came before them, which is seen only once."""
        patience = Patience(60)
        while words not in self._seen:
            assert not patience.ended, f"{words!r} is not in {self._seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                self._seen += os.read(self._master, 65_536).decode(errors="replace")
        before, _, self._seen = self._seen.partition(words)
        return before

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def test_the_shell_at_a_terminal(tmp_path: Path) -> None:
    """Several lines, completion, commands, a pager, Ctrl-C at a query and at the prompt, Ctrl-D, and the history."""

    def story(url: str, written: WrittenAnswers) -> None:
        written.write("SELECT\n1", ROWS).write("SELECT * FROM orders", ROWS)
        written.write("hold", MANY, MANY, held=True).write("many", pa.record_batch({"n": list(range(500))}))
        with Terminal("--gateway", url, XDG_STATE_HOME=str(tmp_path)) as shell:
            talk(shell, written)
        assert "+SELECT * FROM orders;" in (tmp_path / "headwater" / "sql_history").read_text()

    def talk(shell: Terminal, written: WrittenAnswers) -> None:
        shell.see("Connected to")
        shell.see("headwater>")
        shell.type("SELECT\r")
        shell.see("...>")
        shell.type("1;\r")
        shell.see("(2 rows)")
        shell.type("SELECT * FROM ord\t")
        shell.see("ers")
        shell.type(";\r")
        shell.see("(2 rows)")
        shell.type("nonsense;\r")
        shell.see("there is no answer to 'nonsense'")
        shell.type("many;\r")
        shell.see("(500 rows)")
        shell.type("\\format ndjson\r")
        shell.see("The format is ndjson.")
        shell.type("hold;\r")
        eventually(lambda: bool(written.queries) and written.queries[-1].sql == "hold", "the query runs")
        shell.see('{"n":100}')
        os.kill(shell.process.pid, signal.SIGINT)
        shell.see("the query was cancelled")
        assert "User:ANONYMOUS has cancelled it" in written.queries[-1].reasons
        shell.type("wait;\r")
        eventually(written.waiting.is_set, "the question arrives")
        os.kill(shell.process.pid, signal.SIGINT)
        shell.see("the query was cancelled")
        eventually(lambda: written.left == 1, "the gateway notices that nobody waits")
        shell.see("headwater>")
        shell.type("half a line\x03")
        # Between two lines the terminal itself takes Ctrl-D, so it is typed until the shell has it.
        eventually(lambda: left(shell), "the shell ends", every=0.2)
        assert shell.process.returncode == 0

    def left(shell: Terminal) -> bool:
        if shell.process.poll() is None:
            with suppress(OSError):  # it may end meanwhile
                shell.type("\x04")
        return shell.process.poll() is not None

    answering(story)
