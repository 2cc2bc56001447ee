"""Failures planted into duties of a real broker: its health page, its log, its exit code, and its return."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from harness.patience import eventually
from tests.support.running import Running

PROMISES = ("M7", "O4")

PLANTING = Path(__file__).parent / "planting"
SETTINGS = "[housekeeping]\ninterval_ms = 100\n"
A_DUTY_FAILED = 7


def duty(server: Running, process: str, name: str) -> dict[str, Any]:
    """What `/health` says of a duty; nothing while the process does not answer."""
    duties = json.loads(server.page("/health")[1]).get("duties", {}).get(process, [])
    found: dict[str, Any] = next((entry for entry in duties if entry["name"] == name), {})
    return found


def status(server: Running) -> str:
    found: str = json.loads(server.page("/health")[1])["status"]
    return found


def logged(server: Running, message: str, **facts: object) -> list[dict[str, Any]]:
    lines = [line for line in server.log_lines() if line["message"] == message]
    return [line for line in lines if facts.items() <= line.items()]


def test_duties_that_die(tmp_path: Path) -> None:
    plants = tmp_path / "plants"
    plants.mkdir()
    path = os.pathsep.join(filter(None, [str(PLANTING), os.environ.get("PYTHONPATH")]))
    variables = {"PYTHONPATH": path, "HEADWATER_TEST_PLANTS": str(plants)}
    with Running(tmp_path, settings=SETTINGS, variables=variables) as server:
        assert duty(server, "broker-1", "housekeeping")["state"] == "running"
        assert status(server) == "healthy"

        planted = plants / "housekeeping"
        planted.touch()
        eventually(lambda: duty(server, "broker-1", "housekeeping").get("restarts", 0) >= 2, "it is restarted")
        eventually(lambda: status(server) == "degraded", "it waits for its next restart")
        assert duty(server, "broker-1", "housekeeping")["error"] == "RuntimeError: planted into housekeeping"
        assert server.page("/readyz")[0] == 200, "the broker serves all the while"
        planted.unlink()
        eventually(lambda: status(server) == "healthy", "it is well again")
        [death, *_] = logged(server, "a duty died", duty="housekeeping", then="restart")
        assert death["level"] == "error" and "Traceback" in death["error"]
        assert not logged(server, "a process ended")

        (plants / "membership").touch()
        eventually(lambda: logged(server, "a process ended", exit_code=A_DUTY_FAILED), "the broker ends")
        [death] = logged(server, "a duty died", duty="membership", then="end")
        assert "Traceback" in death["error"]
        [end] = logged(server, "the process ends")
        assert end["level"] == "critical"
        assert end["reason"] == "the duty membership died: RuntimeError: planted into membership"
        eventually(lambda: status(server) == "healthy", "the supervisor has started it again")
        told = duty(server, "supervisor", "broker-1")
        assert (told["state"], told["restarts"]) == ("running", 1)
        assert told["error"] == f"the process ended with exit code {A_DUTY_FAILED}"
