"""Apache Kafka's own command line tools, unchanged. A start of Java costs seconds, so many of them share one.

`java/ToolLife.java` runs a tool as if it had a JVM of its own.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from harness.jvm import OF_KAFKA
from tests.compat.common import TOOLS, tool, unavailable

PACKAGE = "org.apache.kafka.tools"
APART = frozenset({f"{PACKAGE}.consumer.ConsoleConsumer"})
"""Tools that are run once in a JVM: this one counts what it has read in a static field."""
SECONDS = 60
LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a tool ended, and what it said."""

    code: int
    out: str
    error: str


class KafkaTools(AbstractContextManager["KafkaTools"]):
    """Runs tools one after the other, with further options for Java."""

    def __init__(self, directory: Path, *options: str) -> None:
        java = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
        libs, classes = tool("kafka/libs"), tool("compat/java/ToolLife.class").parent
        log = directory / "log4j2.properties"
        log.write_text(LOGGING)
        self._java = [java, *OF_KAFKA, "-Xmx128M", "-Duser.language=en", f"-Dlog4j2.configurationFile={log}", *options]
        self._java += ["-cp", f"{libs}/*:{classes}"]
        self._life = subprocess.Popen(
            [*self._java, "ToolLife"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TOOLS, env=os.environ
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._life.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self._life.kill()
            self._life.communicate()
            raise
        assert self._life.returncode == 0

    def run(self, name: str, *arguments: str, given: str = "") -> Ended:
        """Run a tool by its class, of Kafka's package for tools by default, with what it reads."""
        main = name if name.startswith(("kafka.", "org.")) else f"{PACKAGE}.{name}"
        return self._apart([main, *arguments], given) if main in APART else self._ask([main, *arguments], given)

    def _apart(self, words: Sequence[str], given: str) -> Ended:
        done = subprocess.run(
            [*self._java, *words], input=given, capture_output=True, text=True, timeout=SECONDS, cwd=TOOLS
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def _ask(self, words: Sequence[str], given: str) -> Ended:
        assert self._life.stdin is not None
        texts = [text.encode() for text in (*words, given)]
        request = b"".join(struct.pack(">i", len(text)) + text for text in texts)
        self._life.stdin.write(struct.pack(">i", len(words)) + request)
        self._life.stdin.flush()
        code = self._number()
        out, error = (self._take(self._number()).decode() for _ in range(2))
        return Ended(code, out, error)

    def _number(self) -> int:
        (number,) = struct.unpack(">i", self._take(4))
        return int(number)

    def _take(self, count: int) -> bytes:
        assert self._life.stdout is not None
        found = self._life.stdout.read(count)
        if len(found) < count:
            raise RuntimeError("the JVM of Kafka's tools has ended, see its standard error")
        return found
