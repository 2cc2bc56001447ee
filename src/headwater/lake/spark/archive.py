"""An archive of the classes that Spark's JVM loads. With it the JVM starts with less than half of the CPU time.

Java maps the archive into memory instead of reading and checking thousands of classes. It refuses an archive of another
Java or of other jars, and starts as it would without one.
"""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

WRITING = "-XX:ArchiveClassesAtExit="
"""The option of a JVM that writes the archive when it ends."""
QUIET = "-Xlog:disable"
"""Java writes warnings about archives to its standard output."""


def archive_path(home: str) -> Path:
    """The file of the archive for a `JAVA_HOME` and the PySpark of this environment, whether it exists or not."""
    found = find_spec("pyspark")
    jars = Path(found.origin).resolve() if found is not None and found.origin is not None else ""  # as Spark does
    place = hashlib.blake2b(str(jars).encode(), digest_size=6).hexdigest()
    return Path(home) / f"classes-{place}.jsa"


def with_archive(options: str, home: str) -> str:
    """Options of a JVM of Spark with this `JAVA_HOME`, with the archive if there is one."""
    path = archive_path(home)
    if WRITING in options or not path.exists() or " " in str(path):
        return options
    return f"{options} -XX:SharedArchiveFile={path} {QUIET}".strip()


def beside(path: Path) -> Path:
    """A name for an archive that is being written."""
    return path.with_name(f"{path.name}.{os.getpid()}")
