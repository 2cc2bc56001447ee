"""A feature level is raised under load while brokers of two builds run, and an older build halts after that."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.patience import eventually
from harness.process import environment, headwater
from harness.tools import ROOT
from headwater import __version__
from headwater.state.machine import LEVEL, LEVELS
from tests.faults.builds import take_compiled
from tests.faults.rolling import NODES, loaded, wait_for_traffic
from tests.support.promise import promise

PROMISES = ("M5",)

pytestmark = pytest.mark.long
NEXT, BUILD = LEVEL + 1, "99.0.0"


def newer_code(directory: Path) -> Path:
    """The sources of a build that knows one level more."""
    source = directory / "newer"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    machine, version = source / "headwater/state/machine.py", source / "headwater/version.py"
    for file, found, wanted in (
        (machine, f'{LEVEL}: "{LEVELS[LEVEL]}"}}', f'{LEVEL}: "{LEVELS[LEVEL]}", {NEXT}: "{BUILD}"}}'),
        (version, f'"{__version__}"', f'"{BUILD}"'),
    ):
        text = file.read_text()
        assert found in text, f"{file.name} says {found}"
        file.write_text(text.replace(found, wanted))
    take_compiled(source)
    return source


def level_line(cluster: Cluster) -> str:
    """What `cluster describe` says of the level."""
    done = headwater("cluster", "describe", "--bootstrap", cluster.bootstrap)
    assert done.returncode == 0, done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith("level:"))


@promise("M5")
@pytest.mark.timeout(300)
def test_a_level_is_raised_under_load(tmp_path: Path) -> None:
    """Refused while a broker does not know it, waited for, raised without an error that a client sees."""
    newer = newer_code(tmp_path)
    settings = "[housekeeping]\ninterval_ms = 500\ncheckpoint_bytes = 20000\n"
    with Cluster(tmp_path / "cluster", "sqlite", settings=settings) as cluster, loaded(cluster) as load:
        wait_for_traffic(load)
        assert level_line(cluster).split() == ["level:", str(LEVEL)]
        for node in NODES[:-1]:
            cluster.member(node).source = newer
            cluster.roll(f"broker-{node}")
        wait_for_traffic(load)
        refused = headwater("cluster", "upgrade", "--timeout", "2", "--bootstrap", cluster.bootstrap)
        assert refused.returncode != 0
        assert f"broker {NODES[-1]} runs {__version__}" in refused.stdout + refused.stderr, refused
        assert level_line(cluster).split() == ["level:", str(LEVEL)]
        with subprocess.Popen(
            [sys.executable, "-m", "headwater", "cluster", "upgrade", "--bootstrap", cluster.bootstrap],
            stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
        ) as upgrade:  # fmt: skip
            assert upgrade.stdout is not None
            assert upgrade.stdout.readline().startswith("waiting: ")
            cluster.member(NODES[-1]).source = newer
            cluster.roll(f"broker-{NODES[-1]}")
            assert f"the cluster is at level {NEXT} now; it was at {LEVEL}" in upgrade.stdout.read()
        assert upgrade.returncode == 0
        assert level_line(cluster).split() == ["level:", str(NEXT)]
        wait_for_traffic(load)
        older = cluster.member(1)
        older.kill()
        older.source = None
        older.launch()
        eventually(lambda: not older.runs, "the older build has ended", 60)
        assert older.process is not None and older.process.returncode not in (0, None)
        assert f"Start Headwater {BUILD} or later" in cluster.log.read_text()
        older.source = newer
        cluster.restart(1)
        wait_for_traffic(load)
        load.finish()
        done = headwater(
            "doctor", "--config", str(cluster.config), more={**cluster.stores.environment, "PYTHONPATH": str(newer)}
        )
        assert done.returncode == 0, done.stdout + done.stderr
