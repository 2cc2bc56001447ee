"""The programs in `docs/transactions.md` run as they are printed there, and copy each record once."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from harness.jvm import OF_KAFKA
from harness.patience import eventually
from headwater.clock import SystemClock
from tests.compat.common import DEADLINE_S, TOOLS, new_topic, tool, unavailable
from tests.compat.librdkafka import Librdkafka
from tests.support.promise import promise
from tests.support.transactional import Writers, read

PROMISES = ("K12",)

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
COUNT = 5
MARGIN = "    "


def program(name: str) -> str:
    """The program on the page whose first line is a comment with this name."""
    found = re.search(
        rf"^{MARGIN}(?://|#) {re.escape(name)}\n((?:^{MARGIN}.*\n|^\n(?={MARGIN}))+)", PAGE.read_text(), re.M
    )
    assert found is not None, f"there is no {name} on the page"
    return re.sub(rf"^{MARGIN}", "", found[1], flags=re.M)


def command(file: Path) -> list[str]:
    """How to run a program."""
    if file.suffix == ".py":
        return [sys.executable, str(file)]
    java = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    tool("kafka/libs")
    return [java, *OF_KAFKA, "-Xmx256m", "-cp", f"{TOOLS / 'kafka/libs'}/*", str(file)]


@contextmanager
def running(file: Path, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program. Its messages go to a file."""
    with said.open("wb") as sink:
        process = subprocess.Popen(command(file), stdout=sink, stderr=sink)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@promise("K12")
@pytest.mark.parametrize("name", ["Copier.java", "copier.py"])
def test_a_program_copies_each_record_once(name: str, bootstrap: str, reference: Librdkafka, tmp_path: Path) -> None:
    """Committed records arrive, aborted ones do not, and the offsets of the group are committed with them."""
    orders, copies, now_ms = new_topic("orders"), new_topic("copies"), SystemClock().wall_ms()
    for topic in (orders, copies):
        reference.create_topic(topic, 1)
    text = program(name)
    for printed, meant in {"127.0.0.1:9092": bootstrap, "orders": orders, "copies": copies, "copiers": orders}.items():
        assert f'"{printed}"' in text
        text = text.replace(f'"{printed}"', f'"{meant}"')
    file, said = tmp_path / name, tmp_path / "said"
    file.write_text(text)
    writers = Writers(bootstrap)
    wanted = [b"%d" % number for number in range(COUNT)]
    writers.write("doomed", orders, 0, b"aborted", timestamp=now_ms)
    writers.end("doomed", commit=False)
    end = writers.write("", orders, 0, *wanted, timestamp=now_ms)[-1] + 1
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": orders})

    def copied() -> bool:
        assert process.poll() is None, said.read_text(errors="replace")
        [place] = group.committed([TopicPartition(orders, 0)], timeout=DEADLINE_S)
        return bool(place.offset == end)

    try:
        with running(file, said) as process:
            eventually(copied, "the program commits its offsets", DEADLINE_S, every=0.1)
    finally:
        group.close()
    assert [value for *_, value in read(bootstrap, copies, [0])] == wanted
