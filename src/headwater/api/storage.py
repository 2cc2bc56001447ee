"""What readers of tables are told about the object store: where it is, never who may enter.

Readers bring credentials of their own. Whoever wants the catalog to hand some out names them in `lake.readers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_ENDPOINT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")


def reader_properties(url: str, environment: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Iceberg's names for endpoint, region and style of addresses, as this process itself reaches the store.

    They are defaults: a client's own properties count more, as it may know the store by another address.
    """
    found = {}
    if urlsplit(url).scheme in ("s3", "s3a"):
        endpoint, region = _first(environment, _ENDPOINT), _first(environment, _REGION)
        if endpoint:
            virtual = environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() in ("true", "1")
            found["s3.endpoint"] = endpoint
            found["s3.path-style-access"] = str(not virtual).lower()
        if region:
            found["s3.region"] = found["client.region"] = region
    return {**found, **more}


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
