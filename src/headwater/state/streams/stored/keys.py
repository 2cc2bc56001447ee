"""Keys under which units were appended once, with the answers, for a day.

Keys are kept in the order in which they were used, so those that expire are the first ones. The answer of a key is
packed: a key takes about 300 bytes of memory in every process.
"""

from __future__ import annotations

import msgspec

from headwater.state.results import Placed

KEPT_MS = 24 * 3_600_000
MAX_KEYS = 1_000_000
MAX_OWNED = 200_000
"""The limit of keys of one owner."""
MAX_HASH = 32
"""The limit of bytes of a key, a body or an owner."""
MAX_NOTE = 64
KEY_BYTES = 200
"""What a key takes beside its answer."""


class KeptAnswer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The answer to the unit that used a key."""

    ms: int
    owner: bytes
    body: bytes
    note: bytes
    placed: list[Placed]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeptAnswer)


class StoredKeys:
    """The keys of a domain."""

    def __init__(self) -> None:
        self._answers: dict[bytes, bytes] = {}
        self._owned: dict[bytes, int] = {}
        self._owned_bytes: dict[bytes, int] = {}
        self.bytes = 0
        """The bytes of all keys and answers. Like those of an owner they are counted and not stored."""

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        return f"<StoredKeys: {len(self)} of {len(self._owned)} owners>"

    def owned(self, owner: bytes) -> int:
        """The number of keys of an owner."""
        return self._owned.get(owner, 0)

    def owned_bytes(self, owner: bytes) -> int:
        """The bytes of the keys and answers of an owner."""
        return self._owned_bytes.get(owner, 0)

    @property
    def largest(self) -> int:
        """The bytes of the owner who has most."""
        return max(self._owned_bytes.values(), default=0)

    def oldest_ms(self) -> int | None:
        """When the oldest key was used; None if there are none."""
        packed = next(iter(self._answers.values()), None)
        return _decoder.decode(packed).ms if packed is not None else None

    def _weigh(self, owner: bytes, packed: bytes, sign: int) -> None:
        size = sign * (KEY_BYTES + len(packed))
        self.bytes += size
        left = self.owned_bytes(owner) + size
        if left:
            self._owned_bytes[owner] = left
        else:
            del self._owned_bytes[owner]

    def get(self, key: bytes) -> KeptAnswer | None:
        """The answer under a key. Call `expire` first."""
        packed = self._answers.get(key)
        return _decoder.decode(packed) if packed is not None else None

    def full(self, owner: bytes) -> bool:
        """Whether an owner can use no further key now."""
        return len(self._answers) >= MAX_KEYS or self.owned(owner) >= MAX_OWNED

    def put(self, key: bytes, answer: KeptAnswer) -> None:
        """Keep an answer under a new key."""
        packed = self._answers[key] = _encoder.encode(answer)
        self._owned[answer.owner] = self.owned(answer.owner) + 1
        self._weigh(answer.owner, packed, 1)

    def expire(self, now_ms: int) -> int:
        """Forget the keys that are older than a day; returns how many."""
        gone = []
        for key, packed in self._answers.items():
            answer = _decoder.decode(packed)
            if answer.ms + KEPT_MS > now_ms:
                break
            gone.append((key, answer.owner))
        for key, owner in gone:
            self._weigh(owner, self._answers.pop(key), -1)
            left = self._owned[owner] - 1
            if left:
                self._owned[owner] = left
            else:
                del self._owned[owner]
        return len(gone)

    def pack(self) -> list[tuple[bytes, bytes]]:
        """All keys with their packed answers, for a checkpoint."""
        return list(self._answers.items())

    @classmethod
    def unpack(cls, packed: list[tuple[bytes, bytes]]) -> StoredKeys:
        """The inverse of `pack`."""
        self = cls()
        for key, answer in packed:
            self._answers[key] = answer
            owner = _decoder.decode(answer).owner
            self._owned[owner] = self.owned(owner) + 1
            self._weigh(owner, answer, 1)
        return self
