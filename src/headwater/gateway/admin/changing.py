"""What all changes share: the results of commands become errors."""

from __future__ import annotations

from headwater.errors import BadInput, NotFound
from headwater.errors import NotReady as Unready
from headwater.gateway.problems import CONFLICT, Refusal
from headwater.state.results import Done, Reason, Refused, Result


def took(result: Result, *, leased: str = "") -> None:
    """Raise the error of a command that was not carried out. `leased` says what to do if others have the right."""
    if isinstance(result, Done):
        return
    if not isinstance(result, Refused) or result.reason is Reason.FENCED:
        raise Unready(f"not carried out: {result}")
    if result.reason is Reason.UNKNOWN:
        raise NotFound(result.detail)
    if result.reason is Reason.LEASED:
        raise Refusal(CONFLICT, f"{result.detail}: {leased}" if leased else result.detail)
    raise BadInput(result.detail)
