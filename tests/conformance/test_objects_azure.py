"""The object store's conformance suite over an emulator of Azure Blob Storage."""

import asyncio
import shutil
from collections.abc import Iterator

import pytest

from harness.azure import KEY, PROGRAM, AzureServer
from harness.tools import needs
from headwater.objects import ObjectStore, open_store
from headwater.objects.conformance import checks
from headwater.settings.objects import MIN_PART_BYTES, StoreOptions
from tests.support.promise import promise

PROMISES = ("M7",)

CHECKS = [name for name in checks() if name != "a_listing_of_more_than_a_page"]
"""A page of Azure's has 5,000 objects, and the emulator takes half a minute to store a fifth of that."""
PARTS = StoreOptions(multipart_bytes=MIN_PART_BYTES, part_bytes=MIN_PART_BYTES)


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """One emulator for all tests; each takes a prefix of its own."""
    needs("node", shutil.which("node") is not None)
    needs("azurite: run scripts/setup-tools azurite", PROGRAM.exists())
    with AzureServer(tmp_path_factory.mktemp("azure")) as server:
        yield server


@promise("M7")
@pytest.mark.parametrize("name", CHECKS)
def test_conformance(azure: AzureServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure keeps every promise, in parts where an object is large, and nothing shows the account's key."""
    for variable, value in azure.environment.items():
        monkeypatch.setenv(variable, value)

    async def open_one() -> ObjectStore:
        store = open_store(f"{azure.url}/a prefix/{name}", PARTS)
        assert KEY not in repr(store)
        return store

    async def work() -> None:
        await checks()[name](open_one)

    asyncio.run(work())
