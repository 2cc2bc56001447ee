"""`headwater compile` decodes a record of each format."""

from __future__ import annotations

import pytest

from headwater.schemas.decoding import by_schema, warming
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.parsing import Parsed
from tests.support.protobuf import compile_in_process


def test_every_format_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are sound, so that the loops run to their end."""
    compile_in_process(monkeypatch)
    found: list[object] = []

    class Noting:
        def __init__(self, parsed: Parsed) -> None:
            self._inner = by_schema.decoder_of(parsed)

        def decode(self, payloads: object) -> Decoded:
            decoded = self._inner.decode(payloads)  # type: ignore[arg-type]
            found.extend([*decoded.array.to_pylist(), decoded.errors])
            return decoded

    monkeypatch.setattr(warming, "decoder_of", Noting)
    warming.compile_decoders()
    assert found == [{"a": 1, "b": "x"}, {}, {"a": 1, "b": "x"}, {}]
