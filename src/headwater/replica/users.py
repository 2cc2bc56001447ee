"""Creating users, by a process that can append to the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.clock import Chance
from headwater.errors import BadInput, NotReady
from headwater.replica.replica import Replica
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.access import PutUser
from headwater.state.results import Done, Reason, Refused
from headwater.wire.scram import MECHANISMS, derive_keys, salt_password


def commands_of(chance: Chance, name: str, mechanisms: Iterable[str], password: str, iterations: int) -> list[PutUser]:
    """The commands that set a user's password for SCRAM mechanisms. Slow on purpose."""
    found = []
    for mechanism in mechanisms:
        number = MECHANISMS[mechanism]
        salt = chance.uuid().bytes + chance.uuid().bytes
        keys = derive_keys(number, salt_password(number, password, salt, iterations))
        found.append(PutUser(name, number, iterations, salt, *keys))
    return found


async def put_user(
    cluster: Replica[ClusterState], chance: Chance, name: str, mechanism: str, password: str, iterations: int
) -> None:
    """Create a user, or set a new password, for one SCRAM mechanism."""
    [result] = await cluster.submit(commands_of(chance, name, [mechanism], password, iterations))
    if isinstance(result, Done):
        return
    if isinstance(result, Refused) and result.reason is not Reason.FENCED:
        raise BadInput(f"user {name!r}: {result.detail}")
    raise NotReady(f"user {name!r} was not stored")
