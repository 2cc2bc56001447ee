"""A process that has given up its rights: what the kernel refuses, to Python and to DuckDB without any other gate."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.tools import ROOT
from headwater import landlock
from tests.support.hostile import DUCKDB

pytestmark = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
SECRET = "the-word-that-nobody-may-see"
CHILD = """
import json, os, socket, sys, threading
from headwater import landlock
task = json.loads(sys.argv[1])
servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
good, bad = (server.getsockname()[1] for server in servers)
done = landlock.confine([task["store"], *landlock.SYSTEM, *landlock.libraries()], [task["spill"]], [good])
results = {}

def attempt(name, action):
    try:
        results[name] = str(action())
    except OSError as error:
        results[name] = f"errno {error.errno}"

def attempts():
    store, spill, other = task["store"], task["spill"], task["other"]
    attempt("read", lambda: open(f"{store}/a").read())
    attempt("write", lambda: open(f"{store}/a", "r+").write("x"))
    attempt("truncate", lambda: os.truncate(f"{store}/a", 0))
    attempt("create", lambda: open(f"{store}/b", "w"))
    attempt("remove", lambda: os.unlink(f"{store}/a"))
    attempt("rename", lambda: os.rename(f"{store}/a", f"{spill}/a"))
    attempt("link", lambda: os.link(f"{store}/a", f"{spill}/a"))
    attempt("secret", lambda: open(f"{other}/secret").read())
    attempt("list", lambda: os.listdir(other))
    attempt("passwd", lambda: open("/etc/passwd").read())
    attempt("environment", lambda: open("/proc/self/environ").read())
    attempt("parent", lambda: open(f"/proc/{os.getppid()}/environ").read())
    attempt("spill", lambda: open(f"{spill}/x", "w").write("1"))
    attempt("spill remove", lambda: os.unlink(f"{spill}/x"))
    attempt("run", lambda: os.execv("/bin/true", ["true"]))
    attempt("connect", lambda: socket.create_connection(("127.0.0.1", good)).close())
    attempt("connect elsewhere", lambda: socket.create_connection(("127.0.0.1", bad)))

thread = threading.Thread(target=attempts)
thread.start()
thread.join()
import duckdb
seen = []
connection = duckdb.connect(config={"temp_directory": task["spill"]})
connection.execute("CREATE VIEW topic_0 AS SELECT 1 AS key")
for sql in task["statements"]:
    try:
        seen.append(repr(connection.execute(sql).fetchall()))
    except (duckdb.Error, RuntimeError, UnicodeDecodeError) as error:
        seen.append(f"failed: {error}")
read = connection.execute(f"SELECT content FROM read_text('{task['store']}/a')").fetchone()[0]
print(json.dumps({"whole": done.whole, "results": results, "seen": seen, "read": read}))
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("landlock")
    found = {name: root / name for name in ("store", "spill", "other")}
    for place in found.values():
        place.mkdir()
    (found["store"] / "a").write_text("a row")
    (found["other"] / "secret").write_text(SECRET)
    return found


@pytest.fixture(scope="module")
def report(places: dict[str, Path]) -> dict[str, Any]:
    """What a child saw that tried everything; statements run in an engine without any settings."""
    names = {
        "file": places["store"] / "a",
        "secret": places["other"] / "secret",
        "new": places["other"] / "new",
        "spill": places["spill"] / "x",
    }
    task = {name: str(place) for name, place in places.items()}
    statements = [sql.format(**names) for sql in DUCKDB]
    command = [sys.executable, "-c", CHILD, json.dumps({**task, "statements": statements})]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_a_thread_has_only_what_was_left(report: dict[str, Any]) -> None:
    results = report["results"]
    allowed = {"read": "a row", "spill": "1", "spill remove": "None", "connect": "None"}
    assert {name: results[name] for name in allowed} == allowed
    denied = {name: result for name, result in results.items() if name not in allowed}
    assert denied and all(result in ("errno 13", "errno 18") for result in denied.values()), denied
    assert report["whole"]


def test_an_engine_without_gates_reads_the_store_and_nothing_else(
    report: dict[str, Any], places: dict[str, Path]
) -> None:
    assert report["read"] == "a row"
    assert len(report["seen"]) == len(DUCKDB) and not any(SECRET in text for text in report["seen"])
    assert sorted(path.name for path in places["other"].iterdir()) == ["secret"]


def test_an_engine_without_gates_changes_nothing(report: dict[str, Any], places: dict[str, Path]) -> None:
    assert [path.name for path in places["store"].iterdir()] == ["a"]
    digest = hashlib.sha256((places["store"] / "a").read_bytes()).hexdigest()
    assert digest == hashlib.sha256(b"a row").hexdigest()
    assert (places["other"] / "secret").read_text() == SECRET
