"""K1: responses that kio's own types do not read."""

import pytest

from headwater.wire.messages import decode_response, encode_response


@pytest.mark.parametrize("start", [-1, None])
def test_a_transactional_id_without_a_transaction(start: int | None) -> None:
    """Kafka tells -1 as the start of a transaction that does not exist."""
    row = {"transactional_id": "a", "transaction_state": "Empty", "transaction_start_time": start}
    frame = b"".join(map(bytes, encode_response(65, 0, 7, {"transaction_states": [row]})))
    correlation_id, body = decode_response(65, 0, memoryview(frame)[4:])
    assert correlation_id == 7
    assert body.transaction_states[0].transaction_start_time is None
