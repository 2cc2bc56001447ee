"""M5: this build reads what earlier builds wrote: log, tables, groups, users, checkpoints, records after them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import confluent_kafka as ck
import deltalake
import pytest

from harness.process import headwater
from tests.formats.written import ACCESS, EXPECTED, look
from tests.support.running import Running

FIXTURES = sorted(Path(__file__).parent.glob("level-*.tar.xz"))


def test_there_are_fixtures() -> None:
    """M5: without them the next test would test nothing."""
    assert FIXTURES


@pytest.mark.timeout(180)
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_what_earlier_builds_wrote_is_read(tmp_path: Path, fixture: Path) -> None:
    """M5: nothing is lost or changed, and the cluster goes on from there."""
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(["tar", "-xJf", str(fixture), "-C", str(data)], check=True, timeout=60)
    expected = json.loads((data / EXPECTED).read_text())
    done = headwater("doctor", "--data", str(data))
    problems = [line for line in done.stdout.splitlines() if line.startswith("PROBLEM")]
    assert "checked 2 tables" in done.stdout, done.stdout + done.stderr
    assert all(" iceberg: " in line and "is outside" in line for line in problems), "Iceberg's files name their place"
    with Running(tmp_path / "server", data=data, settings=ACCESS) as server:
        assert look(server.bootstrap) == expected
        producer = ck.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
        producer.produce("orders", b"new", partition=0)
        assert producer.flush(60) == 0
        after = look(server.bootstrap)
        assert [row for row in after["orders"] if row[4] == "new"] == [
            row for row in after["orders"] if row not in expected["orders"]
        ]
    [root] = (data / "objects" / "tables").glob("orders-*")
    rows = deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=["partition", "offset", "key", "value"])
    settled = {(row["partition"], row["offset"]): (row["key"], row["value"]) for row in rows.to_pylist()}
    written = {
        (row[0], row[1]): tuple(v.encode() if v is not None else None for v in row[3:5]) for row in expected["orders"]
    }
    assert len(settled) >= 350 and settled.items() <= written.items()
