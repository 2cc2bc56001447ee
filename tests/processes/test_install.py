"""`scripts/install`, with programs in the place of Python and uv that write down what they are asked to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.tools import ROOT

PROMISES = ("O9",)

PYTHON = """#!/bin/sh
# The Python of the environment: pip, and the question for a Java.
root=$(dirname "$(dirname "$(dirname "$0")")")
echo "python $*" >> "$root/asked"
case "$*" in
    *" --target "*)
        if [ -e "$root/no-uv" ]; then echo "there is no uv" >&2; exit 1; fi
        while [ "$1" != --target ]; do shift; done
        mkdir -p "$2/bin"
        cp "$root/fake-uv" "$2/bin/uv" ;;
    *"pip config get"*) exit 1 ;;
    *"pip install"*java.txt*) touch "$root/java" ;;
    *headwater.lake.spark.java*) test -e "$root/java" ;;
esac
"""
UV = """#!/bin/sh
root=$(dirname "$0")/../../../..
echo "uv $*" >> "$root/asked"
if [ -e "$root/uv-fails" ]; then echo "error: no route to the registry"; exit 1; fi
case "$*" in
    *run.txt*)
        echo "Resolved 75 packages in 1s"
        echo "Downloading pyspark (450MiB)"
        while [ -e "$root/slow" ]; do sleep 0.05; done
        echo " + pyspark==4.1.4" ;;
    *java.txt*) touch "$root/java" ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with an environment that has nothing but these programs."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name, text in ((".venv/bin/python", PYTHON), ("fake-uv", UV)):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


def install(clone: Path, tier: str = "run") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["scripts/install", tier], cwd=clone, capture_output=True, text=True, timeout=60, check=False)


def asked(clone: Path) -> list[str]:
    """Who was asked for which packages, without what else was asked."""
    found = []
    for line in (clone / "asked").read_text().splitlines():
        program, _, rest = line.partition(" ")
        if "pip install" in rest and "--target" not in rest:
            what = "itself" if "-e ." in rest else rest.rpartition(" ")[2].removeprefix("requirements/")
            found.append(f"{'uv' if program == 'uv' else 'pip'} {what}")
    return found


def test_uv_installs_and_java_comes_where_there_is_none(clone: Path) -> None:
    done = install(clone)
    assert done.returncode == 0, done.stderr
    assert asked(clone) == ["uv run.txt", "uv itself", "uv java.txt"]
    assert [line for line in done.stdout.splitlines() if " of 4: " in line and line.startswith("install: ")] == [
        "install: 1 of 4: the virtual environment in .venv is there",
        "install: 2 of 4: 75 packages for run; Spark is the largest, with 450 MB",
        "install: 3 of 4: Headwater itself",
        "install: 4 of 4: Java for Spark, 105 MB, because this machine has none that Spark takes",
    ]
    assert "Downloading pyspark" in done.stdout
    assert "Resolved" not in done.stdout and " + " not in done.stdout, "no list of packages"
    assert {path.name for path in (clone / ".venv").iterdir()} == {"bin", ".installed-run"}, "uv is left out"


def test_a_java_that_fits_is_used(clone: Path) -> None:
    (clone / "java").touch()
    assert "install: 4 of 4: the Java for Spark is there" in install(clone, "test").stdout
    assert asked(clone) == ["uv test.txt", "uv itself"]
    assert {path.name for path in (clone / ".venv").glob(".installed-*")} == {".installed-run", ".installed-test"}


@pytest.mark.parametrize(("why", "told"), [("no-uv", "there is no uv"), ("uv-fails", "no route to the registry")])
def test_pip_takes_the_place_of_uv(clone: Path, why: str, told: str) -> None:
    """Where uv cannot be installed, and where it fails."""
    (clone / why).touch()
    done = install(clone)
    assert done.returncode == 0, done.stderr
    assert told in done.stdout and "pip takes its place" in done.stdout
    assert [line for line in asked(clone) if not line.startswith("uv")] == [
        "pip wheel",
        "pip run.txt",
        "pip itself",
        "pip java.txt",
    ]


def test_each_line_is_shown_when_it_is_printed(clone: Path) -> None:
    """Also into a pipe: while Spark is downloaded, the output says so."""
    (clone / "slow").touch()
    with subprocess.Popen(["scripts/install", "run"], cwd=clone, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert any("Downloading pyspark" in line for line in running.stdout)
        finally:
            (clone / "slow").unlink()
        running.stdout.read()
    assert running.returncode == 0


def test_a_set_of_packages_that_does_not_exist(clone: Path) -> None:
    done = install(clone, "everything")
    assert done.returncode == 1 and done.stderr == "install: name what to install: run, test or full\n"
