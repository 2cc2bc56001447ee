"""Flight SQL of a real gateway: ADBC's driver and the JDBC driver list topics, query, prepare, and fail."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import confluent_kafka
import pyarrow as pa
import pytest

from harness.jvm import SHORT_LIVED
from harness.patience import eventually
from harness.ports import free_port
from tests.compat.common import TOOLS, tool, unavailable
from tests.support.running import Running

PROMISES = ("Q7",)

PAGE = Path(__file__).parents[2] / "docs" / "flight-sql.md"
PASSWORDS = {"ann": "wonder", "bob": "builder"}
WIDE = "SELECT a.offset, repeat('x', 1000) AS z FROM orders a, orders b, range(1000000)"
"""Gives gigabytes of rows, the first of them soon."""
SETTINGS = """
[gateway]
flight = "127.0.0.1:{port}"
[sql]
niceness = 0
[security]
acls = true
super_users = "User:ANONYMOUS"
[security.http]
authentication = "basic"
"""


class Flying(Running):
    """A Headwater with Flight SQL, two users, and a topic that one of them may read."""

    def __init__(self, directory: Path) -> None:
        self.flight = free_port()
        super().__init__(directory, gateway=True, settings=SETTINGS.format(port=self.flight))

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.flight}"

    def connect(self, user: str = "ann", password: str = "") -> Any:
        known = {"username": user, "password": password or PASSWORDS[user]}
        return adbc.connect(self.uri, db_kwargs=known, autocommit=True)

    def wait_for_an_engine(self) -> None:
        """Wait until a process for queries runs. On a busy machine one takes longer than a query waits for it."""
        eventually(self._answers, "an engine answers", 90, 0.5)

    def _answers(self) -> bool:
        try:
            with self.connect() as connection, connection.cursor() as cursor:
                return rows(cursor, "SELECT 1") == [(1,)]
        except adbc_driver_manager.OperationalError:
            return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flying]:
    directory = tmp_path_factory.mktemp("flight")
    up = Flying(directory)
    up.prepare()
    for user, password in PASSWORDS.items():
        file = directory / user
        file.write_text(password)
        up.cli("user", "add", user, "--config", str(up.config), "--new-password-file", str(file))
    with up:
        up.create("orders", 2)
        up.create("secret", 1)
        allow = ["--principal", "User:ann", "--operation", "read", "--topic", "orders"]
        up.cli("acl", "add", *allow, "--bootstrap", up.bootstrap)
        producer = confluent_kafka.Producer({"bootstrap.servers": up.bootstrap})
        for i in range(6):
            producer.produce("orders", json.dumps({"n": i}).encode(), f"k{i}".encode(), partition=i % 2)
        producer.produce("secret", b"hidden")
        assert producer.flush(60) == 0
        yield up


def rows(cursor: Any, text: str, *values: Any) -> Any:
    cursor.execute(text, values or None)
    return cursor.fetchall()


def test_adbc(server: Flying) -> None:
    server.wait_for_an_engine()
    with server.connect() as connection, connection.cursor() as cursor:
        [catalog] = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        [schema] = catalog["catalog_db_schemas"]
        [table] = schema["db_schema_tables"]
        assert table["table_name"] == "orders", "the other topic does not exist for this user"
        assert {"partition", "offset", "key", "value"} <= {line["column_name"] for line in table["table_columns"]}
        assert rows(cursor, "SELECT partition, count(*) FROM orders GROUP BY 1 ORDER BY 1") == [(0, 3), (1, 3)]
        asked = "SELECT value FROM headwater.topics.orders WHERE partition = ? AND offset >= ? AND key <> ? ORDER BY 1"
        assert rows(cursor, asked, 1, 1, b"k5") == [(b'{"n": 3}',)]
        assert rows(cursor, asked, 0, 2, b"") == [(b'{"n": 4}',)]
        assert rows(cursor, "SELECT value->>'n' FROM orders WHERE value->>'n' = ?", "2") == [("2",)]
        for text, message in (
            ("SELECT nothing FROM orders", "nothing"),
            ("SELECT * FROM secret", "does not exist"),
            ("SELECT * FROM no_such_topic", "does not exist"),
            ("DELETE FROM orders", "SELECT"),
            ("SELECT * FROM read_csv('/etc/passwd')", "read_csv"),
        ):
            with pytest.raises(adbc_driver_manager.ProgrammingError, match=message):
                cursor.execute(text)
        cursor.execute(WIDE)
        reader = cursor.fetch_record_batch()
        assert reader.read_next_batch().num_rows
        cursor.adbc_cancel()
        with pytest.raises((adbc_driver_manager.Error, pa.ArrowException, OSError)):
            while True:
                reader.read_next_batch()


def test_headwater_up_says_where_it_is(server: Flying) -> None:
    assert f", flight 127.0.0.1:{server.flight}" in server.said.read_text()


def test_who_may_not(server: Flying) -> None:
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="not authenticated"):
        server.connect("ann", "wrong")
    with server.connect("bob") as connection, connection.cursor() as cursor:
        [catalog] = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        assert catalog["catalog_db_schemas"][0]["db_schema_tables"] == []
        with pytest.raises(adbc_driver_manager.ProgrammingError, match="does not exist"):
            cursor.execute("SELECT * FROM orders")


def test_the_example_of_the_documentation(server: Flying, capsys: pytest.CaptureFixture[str]) -> None:
    server.wait_for_an_engine()
    [block] = re.findall(r"<!-- runs: adbc -->\n((?:(?:    .*)?\n)+)", PAGE.read_text())
    text = "\n".join(line[4:] for line in block.splitlines())
    known = {"username": "ann", "password": PASSWORDS["ann"]}
    text = text.replace('"grpc://127.0.0.1:8082"', f"{server.uri!r}, db_kwargs={known}")
    exec(compile(text, str(PAGE), "exec"), {})
    told = capsys.readouterr().out
    assert "(0, 3)" in told and "value: binary" in told


def test_jdbc(server: Flying) -> None:
    server.wait_for_an_engine()
    java = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    classes = tool("jdbc/java/JdbcClient.class").parent
    url = f"jdbc:arrow-flight-sql://127.0.0.1:{server.flight}?useEncryption=false"
    opened = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    command = [java, *SHORT_LIVED, "-Xmx256m", opened, "-cp", f"{classes}:{TOOLS / 'jdbc/libs'}/*", "JdbcClient", url]
    done = subprocess.run([*command, "orders", "ann", PASSWORDS["ann"]], capture_output=True, text=True, check=True)
    lines = [line.split("\t", 1) for line in done.stdout.splitlines()]
    assert not [line for line in lines if line[0] in ("error", "unanswered")], done.stdout

    def found(word: str) -> list[str]:
        return [text for name, text in lines if name == word]

    assert found("product") == ["Headwater true"] and found("table") == ["topics.orders"]
    assert {"partition INTEGER", "offset BIGINT", "value VARBINARY"} <= set(found("column"))
    assert found("count") == ["n=6"]
    assert found("from 0") == ['0 {"n": 0}', '1 {"n": 2}', '2 {"n": 4}']
    assert found("from 1") == ['1 {"n": 2}', '2 {"n": 4}']
    assert found("first") and found("cancelled")
    assert "nothing" in found("failed")[0] and "SELECT" in found("refused")[0]
