"""Users: who there is, new passwords, and deleting users. No answer contains a password or a key."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import Response, delete, get, put
from litestar.params import JSONBody, PathParameter, QueryParameter

from headwater.gateway.admin import users as admin
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, bounded, paged
from headwater.gateway.services import TheCall
from headwater.state.cluster.access import MAX_ITERATIONS, MAX_TEXT, MIN_ITERATIONS, Keys
from headwater.wire.scram import NAMES

UserName = Annotated[str, PathParameter(description="The name of the user, without `User:`.")]
Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
Mechanisms = Annotated[
    list[Mechanism] | None,
    QueryParameter(name="mechanism", description="Delete the keys for this mechanism only; repeatable."),
]


class UserLine(msgspec.Struct, frozen=True):
    """A user."""

    name: str
    """The name of the user."""
    mechanisms: dict[str, int]
    """The iterations of SCRAM by mechanism."""


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A password of a user. Only keys that are derived from it are stored."""

    password: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
    """The password."""
    mechanisms: Annotated[tuple[Mechanism, ...], msgspec.Meta(min_length=1)] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    """The mechanisms that the password is for. Keys for others stay as they are."""
    iterations: Annotated[int, msgspec.Meta(ge=MIN_ITERATIONS, le=MAX_ITERATIONS)] = MIN_ITERATIONS
    """The iterations of SCRAM. More make guessing slower."""

    def __repr__(self) -> str:
        return f"NewPassword(mechanisms={self.mechanisms!r})"


@get("/v1/users", operation_id="listUsers", tags=["users"])
async def list_users(call: TheCall, limit: Limit = DEFAULT_ITEMS, cursor: Next = "") -> Listing[UserLine]:
    """All users, by name. The caller needs the right to DESCRIBE the cluster."""
    users = await admin.all_users(call)
    names = sorted(users, key=bounded)
    page, then = paged("users", names, bounded, limit=limit, cursor=cursor, most=call.services.own.page_items)
    return Listing([_line(name, users[name]) for name in page], then)


@get("/v1/users/{user:str}", operation_id="describeUser", tags=["users"])
async def describe_user(call: TheCall, user: UserName) -> UserLine:
    """A user with the mechanisms that it can log in by. The caller needs the right to DESCRIBE the cluster."""
    return _line(user, await admin.find_user(call, user))


@put("/v1/users/{user:str}", operation_id="putUser", tags=["users"])
async def put_user(call: TheCall, user: UserName, data: JSONBody[NewPassword]) -> Response[UserLine]:
    """Create a user (201), or set another password (200). The caller needs the right to ALTER the cluster."""
    new = await admin.put_user(call, user, data.password, data.mechanisms, data.iterations)
    line = _line(user, call.services.state.access.users.get(user, {}))
    return Response(line, status_code=201 if new else 200)


@delete("/v1/users/{user:str}", operation_id="deleteUser", tags=["users"])
async def delete_user(call: TheCall, user: UserName, mechanisms: Mechanisms = None) -> None:
    """Delete a user, or only its keys for a mechanism. The caller needs the right to ALTER the cluster.

    Rules about the user stay.
    """
    await admin.delete_user(call, user, mechanisms)


def _line(name: str, keys: dict[int, Keys]) -> UserLine:
    return UserLine(name, {NAMES[mechanism]: known.iterations for mechanism, known in sorted(keys.items())})


ROUTES = (list_users, describe_user, put_user, delete_user)
