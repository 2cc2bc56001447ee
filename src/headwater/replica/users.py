"""Creating users, by a process that can append to the ledger."""

from __future__ import annotations

from headwater.clock import Chance
from headwater.errors import BadInput, NotReady
from headwater.replica.replica import Replica
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.access import PutUser
from headwater.state.results import Done, Reason, Refused
from headwater.wire.scram import MECHANISMS, derive_keys, salt_password


async def put_user(
    cluster: Replica[ClusterState], chance: Chance, name: str, mechanism: str, password: str, iterations: int
) -> None:
    """Create a user, or set a new password, for one SCRAM mechanism."""
    number = MECHANISMS[mechanism]
    salt = chance.uuid().bytes + chance.uuid().bytes
    stored_key, server_key = derive_keys(number, salt_password(number, password, salt, iterations))
    [result] = await cluster.submit([PutUser(name, number, iterations, salt, stored_key, server_key)])
    if isinstance(result, Done):
        return
    if isinstance(result, Refused) and result.reason is not Reason.FENCED:
        raise BadInput(f"user {name!r}: {result.detail}")
    raise NotReady(f"user {name!r} was not stored")
