"""What a request reads: counted for the task that asked, and for the tasks that it starts."""

from __future__ import annotations

import asyncio

from headwater.objects.reads import counted, note, so_far


def test_reads_belong_to_the_request() -> None:
    async def request(size: int) -> tuple[int, int]:
        with counted() as reads:
            await asyncio.create_task(_read(size))
            await _read(1)
            assert so_far() is reads
            return reads.requests, reads.bytes

    async def _read(size: int) -> None:
        await asyncio.sleep(0)
        note(size)

    async def main() -> None:
        assert await asyncio.gather(request(10), request(20)) == [(2, 11), (2, 21)]
        note(5)
        assert so_far().requests == 0

    asyncio.run(main())
