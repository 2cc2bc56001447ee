"""What readers of tables and external catalogs get to know about the object store: its address, no credentials.

They use credentials of their own. An operator who wants the REST catalog to hand out credentials sets them in
`lake.readers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_PREFIX = "aws_"


def reader_properties(
    url: str, environment: Mapping[str, str], provider: Mapping[str, str], more: Mapping[str, str]
) -> dict[str, str]:
    """Iceberg's properties for endpoint, region and style of addresses, with the values that this process uses.

    They are defaults. A client's own properties take precedence, because it may use another address of the store.
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
    """obstore's short name of an option: `AWS_REGION` and `aws_region` are `region`."""
    return name.lower().removeprefix(_PREFIX)
