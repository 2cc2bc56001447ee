"""How readers reach the objects: each has its own names for endpoint and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Access:
    """Endpoint and keys of an S3 server, from an environment with the names that every S3 client knows."""

    endpoint: str
    """`http://HOST:PORT`; empty for Amazon's own."""
    region: str
    key: str
    secret: str = field(repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Access:
        return cls(
            environment.get("AWS_ENDPOINT_URL", ""),
            environment.get("AWS_REGION", "us-east-1"),
            environment["AWS_ACCESS_KEY_ID"],
            environment["AWS_SECRET_ACCESS_KEY"],
        )

    @property
    def of_iceberg(self) -> dict[str, str]:
        """Credentials for pyiceberg and for Iceberg's S3FileIO. Endpoint and region come from the REST catalog."""
        return {"s3.access-key-id": self.key, "s3.secret-access-key": self.secret}

    @property
    def of_delta_rs(self) -> dict[str, str]:
        """Storage options of delta-rs."""
        found = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": self.region}
        return {**found, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"} if self.endpoint else found

    @property
    def of_duckdb(self) -> str:
        """The statement that gives DuckDB access."""
        found = f"KEY_ID '{self.key}', SECRET '{self.secret}', REGION '{self.region}'"
        if self.endpoint:
            address = urlsplit(self.endpoint)
            secure = str(address.scheme == "https").lower()
            found += f", ENDPOINT '{address.netloc}', URL_STYLE 'path', USE_SSL {secure}"
        return f"CREATE SECRET headwater (TYPE s3, {found})"

    def of_spark(self, catalog: str) -> dict[str, str]:
        """Settings for Iceberg's S3FileIO under a catalog's name, and for Hadoop's `s3a`, which Delta reads through."""
        found = {f"spark.sql.catalog.{catalog}.{name}": value for name, value in self.of_iceberg.items()}
        own = {"access.key": self.key, "secret.key": self.secret, "endpoint.region": self.region}
        if self.endpoint:
            secure = str(self.endpoint.startswith("https:")).lower()
            own |= {"endpoint": self.endpoint, "path.style.access": "true", "connection.ssl.enabled": secure}
        return found | {f"spark.hadoop.fs.s3a.{name}": value for name, value in own.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a topic can be read."""

    topic: str
    bootstrap: str
    catalog: str
    """The REST catalog's address."""
    root: str
    """The table's directory, or its URL in an object store."""
    access: Access | None = None
    """How to reach the object store; None for a directory."""


def stored(url: str, folder: str, environment: Mapping[str, str]) -> list[str]:
    """The paths of all objects below a folder of a store."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        root = Path(unquote(parts.path))
        return [path.relative_to(root).as_posix() for path in (root / folder).rglob("*") if path.is_file()]
    import obstore
    from obstore.store import S3Store

    access = Access.of(environment)
    store = S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        endpoint=access.endpoint,
        region=access.region,
        access_key_id=access.key,
        secret_access_key=access.secret,
        client_options={"allow_http": True},
    )
    return [str(meta["path"]) for page in obstore.list(store, f"{folder}/") for meta in page]
