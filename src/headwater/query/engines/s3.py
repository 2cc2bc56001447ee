"""How the processes of engines reach a store in S3: what the settings and the environment say, in one form."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from headwater.settings.objects import StoreOptions

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """Credentials and address. Empty values are not known."""

    key: str = ""
    secret: str = ""
    token: str = ""
    region: str = ""
    host: str = ""
    """Host and port, if it is not Amazon's own."""
    tls: bool = True
    path_style: bool = False
    """Whether the bucket is a part of the path, not of the host."""

    def __repr__(self) -> str:
        return f"<S3Access to {self.host or 'Amazon'}>"

    @classmethod
    def of(cls, options: StoreOptions) -> Self:
        """By obstore's options, of the settings and of the environment. The settings come first."""
        known = {_plain(name): value for name, value in os.environ.items() if name.startswith("AWS_")}
        known |= {_plain(name): value for name, value in options.provider.items()}

        def first(*names: str) -> str:
            return next((known[name] for name in names if known.get(name)), "")

        endpoint = first("endpoint", "endpoint_url_s3", "endpoint_url")
        parts = urlsplit(endpoint if "//" in endpoint else f"https://{endpoint}")
        virtual = first("virtual_hosted_style_request").lower() in ("true", "1")
        return cls(
            key=first("access_key_id"),
            secret=first("secret_access_key"),
            token=first("session_token", "token"),
            region=first("region", "default_region"),
            host=parts.netloc if endpoint else "",
            tls=parts.scheme == "https",
            path_style=bool(endpoint) and not virtual,
        )

    @property
    def ports(self) -> frozenset[int] | None:
        """The TCP ports that lead to the store; None if they are not known, because of a proxy."""
        if any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXIES):
            return None
        own = urlsplit(f"//{self.host}").port or (443 if self.tls else 80)
        # Without a key in the settings the credentials come from a service of the cloud.
        return frozenset({own} if self.key else {own, 80, 443})


def _plain(name: str) -> str:
    """obstore's short name of an option: `AWS_REGION` and `aws_region` are `region`."""
    return name.lower().removeprefix("aws_")
