"""Where Spark finds the objects of a store: paths of a local directory, or URLs of S3 with credentials.

Spark's Java reads S3 with jars that are not part of it. Credentials are given to it when it runs: its command line
would show them to every user of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from headwater.errors import ConfigError
from headwater.query.engines.s3 import S3Access
from headwater.settings.objects import StoreOptions, local_path

_PATTERN = re.compile(r"[][{}*?\\]")


class Places:
    """Turns paths of objects into what Spark opens."""

    def __init__(self, store: str, options: StoreOptions, jars: Sequence[str] = ()) -> None:
        """`store` is the URL of the object store. `jars` are files and directories with more classes for Java."""
        self._options = options
        self._jars = tuple(jars)
        self._root = local_path(store, "file")
        parts = urlsplit(store)
        if not can_read(store, jars):
            raise ConfigError(f"Spark cannot read objects at {parts.scheme}://: see sql.spark_jars")
        self._url = f"s3a://{parts.netloc}{parts.path.rstrip('/')}"

    def __repr__(self) -> str:
        return f"<Places below {self._root or self._url}>"

    @property
    def directories(self) -> list[str]:
        """What Java reads beside its own libraries: the directory of the objects, if there is one, and the jars."""
        return [*self._jars, *([] if self._root is None else [str(self._root)])]

    @property
    def class_path(self) -> str:
        """The jars for Java's command line."""
        return ":".join(str(path / "*") if (path := Path(jar)).is_dir() else jar for jar in self._jars)

    @property
    def hadoop(self) -> dict[str, str]:
        """Settings of Hadoop's `s3a`, with credentials."""
        if self._root is not None:
            return {}
        own = S3Access.of(self._options)
        found = {
            "access.key": own.key,
            "secret.key": own.secret,
            "session.token": own.token,
            "endpoint.region": own.region,
            "endpoint": f"{'https' if own.tls else 'http'}://{own.host}" if own.host else "",
            "path.style.access": str(own.path_style).lower(),
            "connection.ssl.enabled": str(own.tls).lower(),
        }
        if own.token:
            found["aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
        return {f"fs.s3a.{name}": value for name, value in found.items() if value}

    def of(self, path: str) -> str:
        """An object as Spark names it."""
        return f"{self._url}/{path}" if self._root is None else place_of(self._root / path)


def can_read(store: str, jars: Sequence[str]) -> bool:
    """Whether Spark can read objects at this URL."""
    return local_path(store, "file") is not None or (urlsplit(store).scheme in ("s3", "s3a") and bool(jars))


def place_of(path: Path) -> str:
    """A file as Spark names it: not as a URL, and nothing in it is a pattern."""
    return "file:" + _PATTERN.sub(r"\\\g<0>", str(path))
