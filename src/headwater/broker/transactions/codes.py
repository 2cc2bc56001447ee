"""The error code of each judgement of a transactional request. It depends on the API and its version."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.state.results import Judgement

_CODES = {
    Judgement.DONE: ErrorCode.none,
    Judgement.UNKNOWN_PRODUCER: ErrorCode.invalid_producer_id_mapping,
    Judgement.FENCED: ErrorCode.producer_fenced,
    Judgement.INVALID_STATE: ErrorCode.invalid_txn_state,
    Judgement.NOT_JOINED: ErrorCode.transaction_abortable,
    Judgement.NO_STREAM: ErrorCode.unknown_topic_or_partition,
    Judgement.STALE_CLAIM: ErrorCode.not_coordinator,
    Judgement.FULL: ErrorCode.policy_violation,
    Judgement.NEEDS_ID: ErrorCode.coordinator_not_available,
    Judgement.MIRRORED: ErrorCode.invalid_request,
}


def code_of(judgement: Judgement, *, knows_fenced: bool = True, knows_abortable: bool = True) -> ErrorCode:
    """The error code for a client. Older versions of an API do not have the codes for fenced and abortable."""
    if judgement is Judgement.FENCED and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    if judgement is Judgement.NOT_JOINED and not knows_abortable:
        return ErrorCode.invalid_txn_state
    return _CODES[judgement]
