"""Users, as a process that can append to the ledger makes them."""

from __future__ import annotations

from headwater.clock import Chance
from headwater.errors import BadInput, NotReady
from headwater.metadata.access_commands import PutUser
from headwater.metadata.cluster import ClusterState
from headwater.metadata.replica import Replica
from headwater.metadata.results import Done, Reason, Refused
from headwater.wire.scram import MECHANISMS, derive_keys, salt_password


async def put_user(
    cluster: Replica[ClusterState], chance: Chance, name: str, mechanism: str, password: str, iterations: int
) -> None:
    """Create a user, or give one a new password, for one SCRAM mechanism."""
    number = MECHANISMS[mechanism]
    salt = chance.uuid().bytes + chance.uuid().bytes
    stored_key, server_key = derive_keys(number, salt_password(number, password, salt, iterations))
    [result] = await cluster.submit([PutUser(name, number, iterations, salt, stored_key, server_key)])
    if isinstance(result, Done):
        return
    if isinstance(result, Refused) and result.reason is not Reason.FENCED:
        raise BadInput(f"user {name!r}: {result.detail}")
    raise NotReady(f"user {name!r} was not stored")
