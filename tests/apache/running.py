"""Runs tests of Apache Kafka's jars in a JVM of their own, on brokers of Headwater."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.jvm import SHORT_LIVED
from tests.apache.clusters import Starter
from tests.compat.common import tool, unavailable

MAIN = "org.apache.kafka.common.test.junit.RunTests"
LIMIT = "120s"
"""Time limit of one run of a test."""
SKIPPED = "skipped"
"""How a run ends that has nothing to say about Headwater: it would be the same once more."""


class Run(msgspec.Struct, frozen=True):
    """How one run of a test ended. A test with several configs runs several times."""

    test: str
    """The name of its class, without the package, and of the method."""
    run: str
    ended: str
    error: str
    trace: tuple[str, ...]
    seconds: float


class Outcome(msgspec.Struct, frozen=True):
    """What came of tests."""

    there: Sequence[str]
    """All tests of the classes, also those that were not run."""
    runs: Sequence[Run]

    @property
    def ended(self) -> Mapping[str, str]:
        """Why each test failed that was run; empty for one that passed."""
        found: dict[str, str] = {}
        for run in self.runs:
            failed = "" if run.ended == "successful" else f"{run.run} {run.ended}: {run.error}"
            found[run.test] = found.get(run.test) or failed
        return found

    @property
    def seconds(self) -> Mapping[str, float]:
        """How long each test took."""
        found: dict[str, float] = {}
        for run in self.runs:
            found[run.test] = found.get(run.test, 0.0) + run.seconds
        return found

    def updated(self, later: Outcome) -> Outcome:
        """With the later runs in place of those of the same tests."""
        again = later.ended
        return Outcome(self.there, [*(run for run in self.runs if run.test not in again), *later.runs])


def run(directory: Path, classes: Sequence[str], wanted: Collection[str] = ()) -> Outcome:
    """Run tests of these classes one after the other; all of them if none is named."""
    java = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    own, libs = tool("apache/java"), tool("apache/libs")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "wanted").write_text("".join(f"{name}\n" for name in wanted))
    with Starter(directory / "clusters") as starter, (directory / "output").open("wb") as output:
        options = [*SHORT_LIVED, "-Xmx512m", f"-Dheadwater.starter={starter.port}", f"-Djava.io.tmpdir={directory}"]
        options += [f"-Djunit.jupiter.execution.timeout.testtemplate.method.default={LIMIT}"]
        subprocess.run(
            [java, *options, "-cp", f"{own}:{libs}/*", MAIN, str(directory), *classes],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=True,
        )  # fmt: skip
    return Outcome((directory / "all").read_text().split(), list(_runs(directory / "results")))


def _runs(file: Path) -> Iterator[Run]:
    for line in file.read_text().splitlines():
        found = msgspec.json.decode(line, type=Run)
        if found.ended != SKIPPED:
            yield found
