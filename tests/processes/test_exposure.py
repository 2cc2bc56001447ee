"""A server does not start beyond loopback without authentication unless it was asked to."""

from pathlib import Path

import pytest

from harness.process import headwater
from tests.support.promise import promise

PROMISES = ("S3",)


@promise("S3")
@pytest.mark.parametrize(
    "command",
    [
        ["up", "--no-lake", "--kafka", "0.0.0.0:0"],
        ["up", "--no-lake", "--kafka", "127.0.0.1:0", "--http", "0.0.0.0:0"],
        ["up", "--no-lake", "--kafka", "127.0.0.1:0", "--gateway-http", "10.0.0.1:0"],
        ["gateway", "--http", "127.0.0.1:0", "--gateway-http", "10.0.0.1:0"],
        ["broker", "--kafka", "0.0.0.0:0", "--http", "127.0.0.1:0"],
    ],
    ids=["up", "up-http", "up-gateway", "gateway", "broker"],
)
def test_servers_refuse_to_start(tmp_path: Path, command: list[str]) -> None:
    """Exit code 1 and a reason."""
    done = headwater(*command, "--data", str(tmp_path))
    assert done.returncode == 1 and "--insecure" in done.stderr and "ready" not in done.stdout
