"""Headwater: a streaming log that is a lakehouse.

    import headwater

    cluster = headwater.connect("http://127.0.0.1:8081")
    cluster.produce("orders", "hello")
    cluster.topic("orders").scan().to_pandas()

`docs/guides/python.md` explains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.version import __version__

if TYPE_CHECKING:
    from headwater.sdk.connection import Connection

__all__ = ["__version__", "connect"]


def connect(
    where: str,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca: str | None = None,
    timeout: float = 30.0,
) -> Connection:
    """Connect to a cluster: by the URL of a gateway, by a data directory, or by a file with settings.

    A gateway asks for `user` and `password`, or for a `token`, if the cluster has users. `ca` is a file with the
    issuers of its certificate. `timeout` is how many seconds a call keeps trying while the cluster cannot be reached.
    A data directory or a settings file needs no server to read: ledger and objects are opened directly.
    """
    from headwater.sdk.connecting import connect as found

    return found(where, user=user, password=password, token=token, ca=ca, timeout=timeout)
