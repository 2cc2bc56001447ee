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

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        return f"<StoredKeys: {len(self)} of {len(self._owned)} owners>"

    def owned(self, owner: bytes) -> int:
        """The number of keys of an owner."""
        return self._owned.get(owner, 0)

    def get(self, key: bytes) -> KeptAnswer | None:
        """The answer under a key. Call `expire` first."""
        packed = self._answers.get(key)
        return _decoder.decode(packed) if packed is not None else None

    def full(self, owner: bytes) -> bool:
        """Whether an owner can use no further key now."""
        return len(self._answers) >= MAX_KEYS or self.owned(owner) >= MAX_OWNED

    def put(self, key: bytes, answer: KeptAnswer) -> None:
        """Keep an answer under a new key."""
        self._answers[key] = _encoder.encode(answer)
        self._owned[answer.owner] = self.owned(answer.owner) + 1

    def expire(self, now_ms: int) -> int:
        """Forget the keys that are older than a day; returns how many."""
        gone = []
        for key, packed in self._answers.items():
            answer = _decoder.decode(packed)
            if answer.ms + KEPT_MS > now_ms:
                break
            gone.append((key, answer.owner))
        for key, owner in gone:
            del self._answers[key]
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
        return self
