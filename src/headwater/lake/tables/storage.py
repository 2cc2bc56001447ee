"""What others are told about the object store: where it is, never who may enter.

Readers of tables and catalogs of others bring credentials of their own. Whoever wants the REST catalog
to hand some out names them in `lake.readers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_PREFIX = "aws_"


def reader_properties(
    url: str, environment: Mapping[str, str], provider: Mapping[str, str], more: Mapping[str, str]
) -> dict[str, str]:
    """Iceberg's names for endpoint, region and style of addresses, as this process itself reaches the store.

    They are defaults: a client's own properties count more, as it may know the store by another address.
    """
    found = {}
    if urlsplit(url).scheme in ("s3", "s3a"):
        known = {_plain(name): value for name, value in environment.items() if name.startswith("AWS_")}
        known |= {_plain(name): value for name, value in provider.items()}
        endpoint = known.get("endpoint") or known.get("endpoint_url_s3") or known.get("endpoint_url")
        region = known.get("region") or known.get("default_region")
        if endpoint:
            virtual = known.get("virtual_hosted_style_request", "").lower() in ("true", "1")
            found["s3.endpoint"] = endpoint
            found["s3.path-style-access"] = str(not virtual).lower()
        if region:
            found["s3.region"] = found["client.region"] = region
    return {**found, **more}


def _plain(name: str) -> str:
    """An option's name as obstore has it in short: `AWS_REGION` and `aws_region` are `region`."""
    return name.lower().removeprefix(_PREFIX)
