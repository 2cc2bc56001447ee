"""The child process that writes a checkpoint."""

from __future__ import annotations

import os

from headwater.app.node import new_state
from headwater.metadata import open_ledger
from headwater.metadata.checkpoint import write_checkpoint
from headwater.objects import open_store
from headwater.store_options import from_environment
from headwater.types import Domain

NICENESS = 10


async def run(ledger_url: str, objects_url: str, domain: int) -> None:
    """Load, replay, write, verify, point, truncate."""
    os.nice(NICENESS)
    options = from_environment()
    ledger, store = open_ledger(ledger_url, options), open_store(objects_url, options)
    try:
        await write_checkpoint(ledger, store, new_state(Domain(domain)))
    finally:
        await ledger.close()
        await store.close()
