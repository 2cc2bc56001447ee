"""The child process that writes a checkpoint."""

from __future__ import annotations

from headwater.ledger import open_ledger
from headwater.objects import open_store
from headwater.priority import step_back
from headwater.replica.checkpoint import write_checkpoint
from headwater.replica.domains import new_state
from headwater.settings.objects import from_environment
from headwater.types import Domain

NICENESS = 10


async def run(ledger_url: str, objects_url: str, domain: int) -> None:
    """Load the state, replay the ledger, write and verify the checkpoint, set the pointer, truncate the ledger."""
    step_back(NICENESS)
    options = from_environment()
    ledger, store = open_ledger(ledger_url, options), open_store(objects_url, options)
    try:
        await write_checkpoint(ledger, store, new_state(Domain(domain)))
    finally:
        await ledger.close()
        await store.close()
