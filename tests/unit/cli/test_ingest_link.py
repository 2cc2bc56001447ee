"""The link of `headwater ingest` is in the ledger before a process starts, and follows what is asked for later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from headwater.app.session import ledger_session
from headwater.cli.ingest import put_link
from headwater.errors import BadInput
from headwater.settings.settings import Settings
from headwater.state.commands.links import LinkSpec
from headwater.state.machine import LEVEL

SPEC = LinkSpec("ingest", ("127.0.0.1:9192",), {}, ("orders",), (), (), {}, False)


async def _specs(settings: Settings) -> list[LinkSpec]:
    async with ledger_session(settings) as here:
        assert here.cluster.state.level == LEVEL
        return [link.spec for link in here.cluster.state.links.links.values()]


def test_an_empty_directory_gets_the_link(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path / "data"))

    async def story() -> None:
        await put_link(settings, SPEC)
        await put_link(settings, SPEC)
        assert await _specs(settings) == [SPEC]
        wider = msgspec.structs.replace(SPEC, topics=("orders", "payments"))
        await put_link(settings, wider)
        assert await _specs(settings) == [wider]

    asyncio.run(story())


def test_a_link_that_makes_no_sense_leaves_no_directory(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path / "data"))
    with pytest.raises(BadInput):
        asyncio.run(put_link(settings, msgspec.structs.replace(SPEC, topics=())))
    assert not (tmp_path / "data").exists()
