"""Objects whose names nobody else may use, such as WAL objects: where it is free, a name that is taken is refused.

A conditional PUT is the same one request to a cloud's store. In a local directory it would cost a link and an unlink
instead of a rename. Two clusters that were given one bucket by mistake would otherwise replace each other's objects.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.objects.store import ObjectStore, StoreRefused
from headwater.types import Pieces

log = logging.getLogger(__name__)


def put_once(store: ObjectStore, path: str, pieces: Pieces) -> Awaitable[None]:
    """Store an object. Where the store guards names, one that holds other bytes is left as it is: `StoreRefused`."""
    return _guarded(store, path, pieces) if getattr(store, "guards", False) else store.put(path, pieces)


async def _guarded(store: ObjectStore, path: str, pieces: Pieces) -> None:
    try:
        created = await store.create(path, pieces)
    except OutcomeUnknown as error:
        raise StoreUnavailable(str(error)) from error  # as after a failed `put`: the object may be there, and is ours
    if not created:
        log.error(
            "an object of this name holds other bytes; is the store used by another cluster?", extra={"path": path}
        )
        raise StoreRefused(f"{path} holds other bytes; is the store used by another cluster?")
