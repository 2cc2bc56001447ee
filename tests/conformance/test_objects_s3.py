"""The object store's conformance suite over a real S3 server, and what goes over the wire to one."""

import asyncio
import base64
import hashlib
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from harness.s3 import BUCKET, PROGRAM, SECRET, S3Server
from harness.tools import needs
from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.objects import ObjectStore, open_store
from headwater.objects.conformance import checks
from headwater.objects.measuring import MeasuredStore
from headwater.objects.store import StoreRefused
from headwater.settings.objects import MIN_PART_BYTES, StoreOptions
from tests.support.promise import promise
from tests.support.tap import Tap

PROMISES = ("M7",)

PARTS = StoreOptions(multipart_bytes=MIN_PART_BYTES, part_bytes=MIN_PART_BYTES, parts_at_once=3)
VARIANTS = {
    "as by default": StoreOptions(),
    "hedged": StoreOptions(hedge_percent=50, hedge_ms=1),
    "in parts": PARTS,
}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests; each takes a prefix of its own."""
    needs("versitygw: run scripts/setup-tools s3", PROGRAM.exists())
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(autouse=True)
def environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in s3.environment.items():
        monkeypatch.setenv(variable, value)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def awaited() -> None:
        await work

    asyncio.run(awaited())


@promise("M7")
@pytest.mark.parametrize("name", checks())
def test_conformance(s3: S3Server, name: str) -> None:
    """A real S3 server keeps every promise."""

    async def open_one() -> ObjectStore:
        return open_store(f"{s3.url}/a prefix/{name}", VARIANTS["as by default"])

    run(_awaited(checks()[name], open_one))


@promise("M7")
@pytest.mark.parametrize("variant", ["hedged", "in parts"])
@pytest.mark.parametrize(
    "name", ["a_large_object_in_many_pieces", "an_object_is_whole_or_not_there", "several_at_once"]
)
def test_variants(s3: S3Server, name: str, variant: str) -> None:
    """Second requests for every read, and uploads in parts, change no promise."""

    async def open_one() -> ObjectStore:
        return open_store(f"{s3.url}/{variant}/{name}", VARIANTS[variant])

    run(_awaited(checks()[name], open_one))


async def _awaited(check: Callable[..., Any], open_one: Callable[[], Any]) -> None:
    await check(open_one)


# --- on the wire -----------------------------------------------------------------------------------------


class Tapped(AbstractContextManager["Tapped"]):
    """A store whose requests are seen."""

    def __init__(self, server: S3Server, prefix: str) -> None:
        self.tap = Tap(server.port)
        self._url = f"{server.url}/{prefix}"

    def __enter__(self) -> "Tapped":
        self.tap.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.tap.__exit__()

    def open(self, **options: Any) -> MeasuredStore:
        provider = {"endpoint": f"http://127.0.0.1:{self.tap.port}", **options.pop("provider", {})}
        store = open_store(self._url, StoreOptions(provider=provider, **options))
        assert isinstance(store, MeasuredStore)
        return store


@promise("M7")
def test_one_request_each(s3: S3Server) -> None:
    """A put, a creation, a read of a whole object or of any range of it are one request, a lost race two."""

    async def work(seen: Tapped) -> None:
        store = seen.open()
        await store.put("a", [b"0123456789"])
        await store.create("b", [b"x"])
        assert await store.get("a") == b"0123456789"
        assert await store.get("a", 3, 4) == b"3456"
        assert await store.get("a", 8, 400) == b"89"
        assert await store.get("a", 8) == b"89"
        assert await store.get("a", 10, 5) == b""
        assert await store.get("a", 11) == b""
        methods = [line.split()[0] for line in seen.tap.lines()]
        assert methods == ["PUT", "PUT", "GET", "GET", "GET", "GET", "GET", "GET"]
        assert not await store.create("a", [b"other"])
        assert [line.split()[0] for line in seen.tap.lines()[8:]] == ["PUT", "GET"]
        assert await store.get_many(["a", "b", "none"]) == [b"0123456789", b"x", None]
        assert len(seen.tap.heads) == 13
        assert store.stats.get.requests == 9 and store.stats.put.requests == 1

    with Tapped(s3, "one-request") as seen:
        run(work(seen))


@promise("M7")
def test_checksums(s3: S3Server) -> None:
    """A put carries its checksum, and what arrives otherwise than it was sent is not stored."""
    body = b"0123456789" * 1000
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()

    async def work(seen: Tapped) -> None:
        store = seen.open(retries=0)
        await store.put("right", [body])
        assert f"x-amz-checksum-sha256: {digest}" in seen.tap.heads[-1]
        await seen.open(checksum="crc64nvme").put("other", [body])
        assert "x-amz-checksum-crc64nvme: " in seen.tap.heads[-1]
        seen.tap.mangle = lambda head, sent: sent.replace(b"5", b"6", 1)
        with pytest.raises(StoreUnavailable):
            await store.put("wrong", [body])
        with pytest.raises(StoreUnavailable):
            await store.create("wrong", [body])
        spoilt = iter([b"6"])
        seen.tap.mangle = lambda head, sent: sent.replace(b"5", next(spoilt, b"5"), 1)
        await seen.open(backoff_ms=1).put("again", [body])
        assert next(spoilt, None) is None
        assert await store.get("again") == body
        assert await store.get_many(["right", "other", "wrong"]) == [body, body, None]

    with Tapped(s3, "checksums") as seen:
        run(work(seen))


@promise("M7")
def test_encryption(s3: S3Server) -> None:
    """Whatever is stored asks to be encrypted as the settings say, uploads in parts too."""
    kms = {"encryption": "sse-kms", "kms_key": "key-1", "kms_bucket_key": True}

    async def work(seen: Tapped) -> None:
        await seen.open().put("plain", [b"x"])
        assert "server-side-encryption" not in seen.tap.heads[-1]
        for options, header in (
            ({"encryption": "sse-s3"}, "x-amz-server-side-encryption: AES256"),
            (kms, "x-amz-server-side-encryption: aws:kms"),
        ):
            store = seen.open(**options, multipart_bytes=MIN_PART_BYTES, part_bytes=MIN_PART_BYTES)
            before = len(seen.tap.heads)
            await store.put("small", [b"x"])
            await store.create(f"created-{header}", [b"x"])
            await store.put("large", [bytes(MIN_PART_BYTES + 1)])
            begins = [head for head in seen.tap.heads[before:] if "uploads" in head or "partNumber" not in head]
            begins = [head for head in begins if "uploadId=" not in head]
            assert len(begins) == 3 and all(header in head for head in begins)
        assert "x-amz-server-side-encryption-aws-kms-key-id: key-1" in begins[0]
        assert "x-amz-server-side-encryption-bucket-key-enabled: true" in begins[0]

    with Tapped(s3, "encryption") as seen:
        run(work(seen))


@promise("S3", "M7")
def test_secrets_stay_out_of_errors(s3: S3Server) -> None:
    """A refusal says which call and why, and nothing of keys, signatures and addresses."""

    async def work() -> None:
        wrong = open_store(f"{s3.url}/x", StoreOptions(provider={"secret_access_key": "wrong-and-secret"}))
        for call in (wrong.put("a", [b"x"]), wrong.create("a", [b"x"]), wrong.get("a")):
            with pytest.raises(StoreRefused) as caught:
                await call
            assert "403 SignatureDoesNotMatch" in str(caught.value)
            for hidden in ("wrong-and-secret", SECRET, "http:", "StringToSign", "AWS4-HMAC"):
                assert hidden not in str(caught.value)
            assert caught.value.__cause__ is None and caught.value.__suppress_context__
        with pytest.raises(StoreRefused, match="NoSuchBucket"):
            await open_store("s3://no-such-bucket/x").create("a", [b"x"])
        with pytest.raises(StoreRefused, match="NoSuchBucket"):
            await open_store("s3://no-such-bucket/x").put("a", [b"x"])

    run(work())


# --- uploads in parts ------------------------------------------------------------------------------------


def unfinished(server: S3Server) -> list[str]:
    """Parts of uploads that were neither completed nor aborted."""
    found = (server.directory / "buckets" / BUCKET / ".sgwtmp" / "multipart").rglob("*")
    return [str(path) for path in found if path.is_file()]


@promise("M7")
def test_parts(s3: S3Server) -> None:
    """A large object goes in parts, a small one does not."""
    body = bytes(range(256)) * (MIN_PART_BYTES * 3 // 256 + 1)

    async def work(seen: Tapped) -> None:
        store = seen.open(multipart_bytes=MIN_PART_BYTES, part_bytes=MIN_PART_BYTES, parts_at_once=2)
        await store.put("small", [body[:MIN_PART_BYTES]])
        assert len(seen.tap.heads) == 1
        await store.put("large", [body[:100], body[100:]])
        assert sum("partNumber=" in line for line in seen.tap.lines()) == 4
        assert await store.get("large") == body
        assert store.stats.put.bytes == len(body) + MIN_PART_BYTES

    with Tapped(s3, "parts") as seen:
        run(work(seen))
    assert unfinished(s3) == []


@promise("M7")
def test_an_upload_that_fails_is_aborted(s3: S3Server) -> None:
    """Parts of an upload that broke off do not stay; the next attempt stores the object."""
    body = bytes(MIN_PART_BYTES * 5)

    async def work(seen: Tapped) -> None:
        store = seen.open(multipart_bytes=MIN_PART_BYTES, part_bytes=MIN_PART_BYTES, parts_at_once=1, retries=0)
        stored: list[str] = []

        def third_part(head: str) -> bool:
            if "partNumber=3" not in head:
                return False
            stored.extend(unfinished(s3))
            return True

        seen.tap.cut = third_part
        with pytest.raises(StoreUnavailable):
            await store.put("large", [body])
        assert stored, "two parts lay there"
        assert any(line.startswith("DELETE") and "uploadId=" in line for line in seen.tap.lines())
        assert await store.get_many(["large"]) == [None]
        cuts = iter([True])
        seen.tap.cut = lambda head: "partNumber=4" in head and next(cuts, False)
        await store.put("large", [body])
        assert await store.get("large") == body

    with Tapped(s3, "aborted") as seen:
        run(work(seen))
    assert unfinished(s3) == []


# --- reads ----------------------------------------------------------------------------------------------


@promise("M7")
def test_a_second_request_wins(s3: S3Server) -> None:
    """A read whose request gets stuck is answered by the second one."""

    async def work(seen: Tapped) -> None:
        store = seen.open(hedge_percent=50, hedge_ms=50)
        await store.put("a", [b"data"])
        for _ in range(4):
            await store.get("a")
        stuck = iter([True])
        seen.tap.stall = lambda head: next(stuck, False)
        assert await store.get("a", 1, 2) == b"at"
        assert store.stats.hedges_won >= 1 and store.stats.get.errors == store.stats.get.retries == 0

    with Tapped(s3, "second") as seen:
        run(work(seen))


@promise("M7")
def test_a_request_that_gets_stuck(s3: S3Server) -> None:
    """It is given up after its own time, and the next attempt succeeds; a creation then finds itself or is new."""

    async def work(seen: Tapped) -> None:
        store = seen.open(attempt_ms=300, backoff_ms=1)
        for call in (store.put("a", [b"data"]), store.create("b", [b"data"]), store.get("a"), store.size("b")):
            stuck = iter([True])
            seen.tap.stall = lambda head, stuck=stuck: next(stuck, False)  # type: ignore[misc]
            assert await call in (None, True, b"data", 4)
        counts = [
            store.stats.put.retries,
            store.stats.create.retries,
            store.stats.get.retries,
            store.stats.size.retries,
        ]
        assert min(counts) >= 1
        seen.tap.stall = lambda head: True
        with pytest.raises(OutcomeUnknown):
            await seen.open(attempt_ms=100, retries=0).create("c", [b"data"])

    with Tapped(s3, "stuck") as seen:
        run(work(seen))
