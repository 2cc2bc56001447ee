"""Headwater's wheel in environments of their own, with the libraries of some extras and no others.

The libraries are those of the environment that runs the tests, by hard links: what an environment has is
decided by the metadata of the wheel, as pip does it, and nothing is fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from harness.process import environment
from harness.tools import ROOT

BUILD_SECONDS = 120.0


def build(directory: Path) -> Path:
    """The wheel, built of a copy of the sources."""
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(source))
    [wheel] = directory.glob("headwater-*.whl")
    return wheel


class Installed:
    """The wheel in an environment with the libraries of these extras."""

    def __init__(self, directory: Path, wheel: Path, extras: Iterable[str]) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=BUILD_SECONDS
        )
        self.bin = directory / "bin"
        _pip("--python", str(self.bin / "python"), "install", "--no-deps", "--no-index", "--no-compile", str(wheel))
        [self.packages] = directory.glob("lib/python*/site-packages")
        [metadata] = self.packages.glob("headwater-*.dist-info")
        for found in _needed(PathDistribution(metadata), set(extras)):
            self._link(found)

    def run(self, *command: str, timeout: float = 60.0, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of the environment."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            capture_output=True, text=True, timeout=timeout, check=False, env=environment(), input=text,
            cwd=self.bin.parent,
        )  # fmt: skip

    def _link(self, found: Distribution) -> None:
        """Link each file of a distribution, or copy it to another disk."""
        home = Path(str(found.locate_file(""))).resolve()
        for file in found.files or ():
            place = Path(str(found.locate_file(file))).resolve()
            if home not in place.parents or not place.is_file():
                continue
            target = self.packages / place.relative_to(home)
            if target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(place, target)
            except OSError:
                shutil.copy2(place, target)


def _needed(own: Distribution, extras: set[str]) -> list[Distribution]:
    """The distributions that pip would install for the extras."""
    found: dict[tuple[str, str], Distribution] = {}
    waiting = [(own, extra) for extra in ("", *extras)]
    while waiting:
        holder, extra = waiting.pop()
        for line in holder.requires or ():
            wanted = Requirement(line)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            for more in ("", *wanted.extras):
                key = (re.sub(r"[-_.]+", "-", wanted.name).lower(), more)
                if key not in found:
                    found[key] = own if key[0] == "headwater" else distribution(wanted.name)
                    waiting.append((found[key], more))
    return [dist for (name, _), dist in found.items() if name != "headwater"]


def _pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        check=True, timeout=BUILD_SECONDS,
    )  # fmt: skip
