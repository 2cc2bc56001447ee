"""What all changes share: the results of commands become errors, and commands that need a level check it first."""

from __future__ import annotations

from headwater.errors import BadInput, NotFound
from headwater.errors import NotReady as Unready
from headwater.gateway.problems import CONFLICT, UNAVAILABLE, Refusal
from headwater.replica.replica import Replica
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import UNITS_LEVEL
from headwater.state.streams.state import StreamsState


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


async def need_units(replica: Replica[StreamsState], what: str) -> None:
    """Raise unless the cluster has the level of changes that a gateway makes without a coordinator."""
    if replica.state.level >= UNITS_LEVEL:
        return
    await replica.barrier()
    level = replica.state.level
    if level < UNITS_LEVEL:
        raise Refusal(
            UNAVAILABLE,
            f"{what} over HTTP needs level {UNITS_LEVEL}, and the cluster is at level {level}: "
            "run `headwater cluster upgrade` when all processes run this build",
        )
