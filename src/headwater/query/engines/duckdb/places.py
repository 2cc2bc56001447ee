"""Where DuckDB finds the objects of a store: paths of a local directory, or URLs of S3 with credentials.

DuckDB takes `*`, `?` and `[` in a path for a pattern, and has no way to quote them. A directory whose path has one of
them is entered, and its objects are opened below the name that Linux has for the directory a process is in.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headwater.errors import ConfigError
from headwater.query.engines.s3 import S3Access
from headwater.settings.objects import StoreOptions, local_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HERE = "/proc/self/cwd"
_PATTERN = frozenset("*?[")


class Places:
    """Turns paths of objects into what DuckDB opens."""

    def __init__(self, store: str, options: StoreOptions) -> None:
        """`store` is the URL of the object store."""
        self._options = options
        root = local_path(store, "file")
        if root is None:
            parts = urlsplit(store)
            if parts.scheme not in ("s3", "s3a"):
                raise ConfigError(f"DuckDB cannot read objects at {parts.scheme}://")
            self._root = f"s3://{parts.netloc}{parts.path.rstrip('/')}"
        else:
            self._root = str(root)
        self._remote = root is None
        self._below = HERE if root is not None and _PATTERN & set(str(root)) else self._root

    def __repr__(self) -> str:
        return f"<Places below {self._root}>"

    @property
    def directories(self) -> list[str]:
        """The directories that hold objects; none if the store is over a network."""
        return [] if self._remote else [self._root]

    @property
    def ports(self) -> frozenset[int] | None:
        """The TCP ports that lead to the store; None if they are not known, because of a proxy."""
        return S3Access.of(self._options).ports if self._remote else frozenset()

    def of(self, path: str) -> str:
        """The path or the URL of an object."""
        return f"{self._below}/{path}"

    def enter(self) -> None:
        """Enter the directory of the objects if its path cannot be written. Call it once in a process."""
        if self._below != self._root:
            if not os.path.isdir(HERE):
                raise ConfigError(f"on this system DuckDB cannot read a path with *, ? or [ in it: {self._root}")
            os.chdir(self._root)

    def prepare(self, connection: DuckDBPyConnection) -> None:
        """Let a new database reach a store over a network. Must be called before it is locked."""
        if not self._remote:
            return
        connection.execute(f"LOAD {_text(_extension('httpfs'))}")
        wanted = {"TYPE": "s3", "PROVIDER": "config", "SCOPE": self._root, **_secret(S3Access.of(self._options))}
        fields = ", ".join(f"{name} {_text(value)}" for name, value in wanted.items())
        connection.execute(f"CREATE SECRET headwater ({fields})")


def _extension(name: str) -> str:
    """The file of an extension that is installed as a Python package. Nothing is fetched."""
    import duckdb

    try:
        found = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    except ModuleNotFoundError as error:
        raise ConfigError(f"SQL over objects in S3 needs the package duckdb-extension-{name}") from error
    return str(found)


def _secret(own: S3Access) -> dict[str, str]:
    """The fields of DuckDB's secret."""
    found = {"KEY_ID": own.key, "SECRET": own.secret, "SESSION_TOKEN": own.token, "REGION": own.region}
    if own.host:
        found |= {
            "ENDPOINT": own.host,
            "USE_SSL": str(own.tls).lower(),
            "URL_STYLE": "path" if own.path_style else "vhost",
        }
    return {name: value for name, value in found.items() if value}


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
