"""A cluster is backed up under load, killed, and restored, by the commands of docs/guides/backup.md."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path

import confluent_kafka
import pytest
import typer

from demo.readers import sum_of
from harness.headwater import Headwater
from harness.process import headwater
from headwater.app.session import ledger_session
from headwater.cli import main
from headwater.settings.settings import load
from headwater.types import Domain
from tests.faults.lake_running import FRESHNESS, READERS, LakeRunning, Row, Writer, key_of, patiently

PROMISES = ("O6",)

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "backup.md").read_text()
TOPIC, STEADY, PARTITIONS, GROUP = "kept", "steady", 3, "readers"
OFFSETS = {0: 5, 1: 7, 2: 11}
FOLLOWERS = {"pyiceberg": "iceberg", "DuckDB, Iceberg": "iceberg", "delta-rs": "delta", "DuckDB, Delta": "delta"}
"""Readers, and the followers whose tables they read."""


def commands(heading: str) -> list[str]:
    """The commands in a section of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^    ((?:headwater|mv) .*)$", section, re.MULTILINE)


class Machine:
    """Runs commands of the page, with directories of this test in place of those that it names."""

    def __init__(self, tmp_path: Path, data: Path) -> None:
        self.backup, self.trial = tmp_path / "a backup", tmp_path / "trial"
        self._places = {
            "/backups/headwater": self.backup,
            "/tmp/trial": self.trial,
            "/var/lib/headwater.broken": data.with_name("broken"),
            "/var/lib/headwater": data,
        }

    def run(self, line: str) -> str:
        words = [str(self._places.get(word, word)) for word in shlex.split(line)]
        if words[0] == "mv":
            shutil.move(words[1], words[2])
            return ""
        done = headwater(*words[1:], timeout=300)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout


def write_one(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"the only one")
    assert producer.flush(60) == 0


def commit_offsets(bootstrap: str) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=_partitions(OFFSETS), asynchronous=False)
    consumer.close()


def committed_offsets(bootstrap: str) -> dict[int, int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        return {found.partition: found.offset for found in consumer.committed(_partitions(OFFSETS), timeout=60)}
    finally:
        consumer.close()


def _partitions(offsets: dict[int, int]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]


def read_all(server: Headwater) -> dict[tuple[int, int], bytes]:
    """The value at each place of the log. Offsets follow each other from 0 on, and no record is there twice."""
    found: dict[tuple[int, int], bytes] = {}
    for partition, records in server.read(TOPIC, range(PARTITIONS)).items():
        assert [offset for offset, _ in records] == list(range(len(records)))
        found |= {(partition, offset): value for offset, value in records}
    assert len(set(found.values())) == len(found)
    return found


def followed(server: Headwater) -> dict[str, dict[int, int]]:
    """By follower, the end of each partition in the version that it has committed, as the ledger of the copy says."""

    async def look() -> dict[str, dict[int, int]]:
        async with ledger_session(load(str(server.config), environment={})) as found:
            topic = found.topic(TOPIC)
            table = found.domains[Domain(topic.domain)].state.tables[topic.id]
            return {name: table.ends_at(follower.cursor) for name, follower in table.followers.items()}

    return asyncio.run(look())


def check_tables(server: Headwater, root: str, log: dict[tuple[int, int], bytes]) -> None:
    """Each table has the log up to where its follower was when the ledger was copied, and nothing else.

    The two followers commit each for itself, so one of them may have been a step behind the other.
    """
    ends, place = followed(server), server.place(TOPIC, root)
    assert ends.keys() == set(FOLLOWERS.values())
    rows: dict[str, list[Row]] = {
        name: [(p, o, key_of(value), value) for (p, o), value in log.items() if o < ends[name].get(p, 0)]
        for name in ends
    }
    assert all(rows.values())
    wanted = {reader: sum_of(rows[follower]) for reader, follower in FOLLOWERS.items()}
    assert {reader: READERS[reader](place) for reader in FOLLOWERS} == wanted, ends


@pytest.mark.long
@pytest.mark.timeout(600)
def test_backup_and_restore(tmp_path: Path) -> None:
    """Every record acknowledged before a backup began is there once, with groups' offsets and both tables."""
    with LakeRunning(tmp_path / "original") as server:
        machine = Machine(tmp_path, server.data)
        server.create(TOPIC, PARTITIONS, **FRESHNESS)
        server.create(STEADY)
        write_one(server.bootstrap, STEADY)
        [back_up] = commands("Back up")
        with Writer(server.bootstrap, [TOPIC], PARTITIONS) as writer:
            patiently(lambda: server.look().versions, "the table has a version", 120)
            commit_offsets(server.bootstrap)
            machine.run(back_up)
            before = list(writer.acks[TOPIC])
            said = machine.run(back_up)
            assert int(re.findall(r"(\d+) kept", said)[0]) > 0, f"the object of {STEADY} was there: {said}"
            writer.finish()
        root = server.look().tables[TOPIC].root
        server.kill_all()
    [doctor, trial, _] = commands("Test a backup")  # the last one serves the trial, as below
    machine.run(doctor)
    machine.run(trial)
    [move, restore, up] = commands("Restore")
    machine.run(move)
    machine.run(restore)
    assert up == "headwater up --data /var/lib/headwater"
    with Headwater(tmp_path / "restored", data=server.data, gateway=True) as restored:
        log = read_all(restored)
        lost = [row for row in before if log.get((row[0], row[1])) != row[3]]
        assert before and not lost, f"{len(lost)} of {len(before)} are lost, first {lost[:3]}"
        assert committed_offsets(restored.bootstrap) == OFFSETS
        check_tables(restored, root, log)
        write_one(restored.bootstrap, STEADY)
        assert [offset for offset, _ in restored.read(STEADY)[0]] == [0, 1]


def test_the_options_of_the_trial_exist() -> None:
    """It is served on fixed ports, so the test above starts another."""
    words = shlex.split(commands("Test a backup")[-1])
    command = typer.main.get_command(main.app).commands[words[1]]  # type: ignore[attr-defined]
    known = {name for option in command.params for name in option.opts}
    assert words[:2] == ["headwater", "up"] and {word for word in words if word.startswith("--")} <= known


def test_what_is_not_whole_is_not_served(tmp_path: Path) -> None:
    """`headwater up` on an interrupted backup ends at once, says what to do, and creates nothing."""
    (tmp_path / "copy" / ".backup").mkdir(parents=True)
    done = headwater("up", "--data", str(tmp_path / "copy"), "--no-lake")
    assert done.returncode == 1
    assert "interrupted" in done.stderr and "headwater backup" in done.stderr
    assert not (tmp_path / "copy" / "ledger.db").exists()
    done = headwater("backup", "--data", str(tmp_path / "nothing"), str(tmp_path / "copy"))
    assert done.returncode == 1 and "no cluster here" in done.stderr
