"""Objects with unique names, such as WAL objects: a name that is taken is refused, where that costs nothing.

Two clusters that use one bucket by mistake would otherwise replace each other's objects. In a cloud's store a
conditional PUT is the same one request. In a local directory it would cost a link and an unlink instead of a rename.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.objects.store import ObjectStore, StoreRefused
from headwater.types import Pieces

log = logging.getLogger(__name__)


def put_once(store: ObjectStore, path: str, pieces: Pieces) -> Awaitable[None]:
    """Store an object. If the store guards names and the path holds other bytes, raise `StoreRefused`."""
    return _guarded(store, path, pieces) if getattr(store, "guards", False) else store.put(path, pieces)


async def _guarded(store: ObjectStore, path: str, pieces: Pieces) -> None:
    try:
        created = await store.create(path, pieces)
    except OutcomeUnknown as error:
        raise StoreUnavailable(str(error)) from error  # as after a failed `put`: the object may be there, and is ours
    if not created:
        log.error(
            "an object of this name holds other bytes; check whether another cluster uses the store",
            extra={"path": path},
        )
        raise StoreRefused(f"{path} already holds other bytes; check whether another cluster uses the same store")
