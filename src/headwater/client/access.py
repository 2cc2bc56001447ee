"""Users and access rules: calls for operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.client.admin import AdminCalls
from headwater.client.errors import check
from headwater.client.routing import Repeat
from headwater.wire.scram import MECHANISMS, NAMES, salt_password

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_USERS, ALTER_USERS = 29, 30, 31, 50, 51
DEFAULT_ITERATIONS = 4_096


@dataclass(frozen=True, slots=True)
class Rule:
    """An access rule in the numbers of the protocol, or a filter. In a filter `None`, or 1 for a number, means any."""

    kind: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int


def _filter(rule: Rule) -> dict[str, Any]:
    return {
        "resource_type_filter": rule.kind,
        "resource_name_filter": rule.name,
        "pattern_type_filter": rule.pattern,
        "principal_filter": rule.principal,
        "host_filter": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission,
    }


class AccessCalls(AdminCalls):
    """Calls about users and access rules."""

    async def create_acls(self, rules: Sequence[Rule]) -> None:
        """Add rules. Rules that exist already stay."""

        def judge(response: Any) -> None:
            for result in response.results:
                check(result.error_code, "an access rule", result.error_message)

        creations = [
            {
                "resource_type": rule.kind,
                "resource_name": rule.name,
                "resource_pattern_type": rule.pattern,
                "principal": rule.principal,
                "host": rule.host,
                "operation": rule.operation,
                "permission_type": rule.permission,
            }
            for rule in rules
        ]
        await self._change(CREATE_ACLS, judge, Repeat.ALWAYS, creations=creations)

    async def describe_acls(self, wanted: Rule) -> list[Rule]:
        """The rules that match a filter."""

        def judge(response: Any) -> None:
            check(response.error_code, "the access rules", response.error_message)

        response = await self._change(DESCRIBE_ACLS, judge, Repeat.ALWAYS, **_filter(wanted))
        return [
            Rule(r.resource_type, r.resource_name, r.pattern_type, a.principal, a.host, a.operation, a.permission_type)
            for r in response.resources
            for a in r.acls
        ]

    async def delete_acls(self, wanted: Rule) -> list[Rule]:
        """Remove the rules that match a filter, and return them."""

        def judge(response: Any) -> None:
            for result in response.filter_results:
                check(result.error_code, "the access rules", result.error_message)

        response = await self._change(DELETE_ACLS, judge, Repeat.IF_NOT_DONE, filters=[_filter(wanted)])
        return [
            replace(wanted, kind=m.resource_type, name=m.resource_name, pattern=m.pattern_type, principal=m.principal,
                    host=m.host, operation=m.operation, permission=m.permission_type)
            for result in response.filter_results
            for m in result.matching_acls
        ]  # fmt: skip

    async def describe_users(self) -> dict[str, dict[str, int]]:
        """All users, each with mechanisms and their iterations."""

        def judge(response: Any) -> None:
            check(response.error_code, "the users", response.error_message)

        response = await self._change(DESCRIBE_USERS, judge, Repeat.ALWAYS, users=None)
        return {
            row.user: {NAMES.get(info.mechanism, str(info.mechanism)): info.iterations for info in row.credential_infos}
            for row in response.results
        }

    async def put_user(
        self, name: str, password: str, mechanisms: Sequence[str], iterations: int = DEFAULT_ITERATIONS
    ) -> None:
        """Create a user or change its password. The password itself is not sent."""
        for mechanism in mechanisms:
            salt = self.chance.uuid().bytes + self.chance.uuid().bytes
            number = MECHANISMS[mechanism]
            change = {
                "name": name,
                "mechanism": number,
                "iterations": iterations,
                "salt": salt,
                "salted_password": salt_password(number, password, salt, iterations),
            }
            await self._alter_user(deletions=[], upsertions=[change])

    async def drop_user(self, name: str, mechanisms: Sequence[str]) -> None:
        """Remove a user's keys for these mechanisms."""
        for mechanism in mechanisms:
            change = {"name": name, "mechanism": MECHANISMS[mechanism]}
            await self._alter_user(deletions=[change], upsertions=[])

    async def _alter_user(self, **fields: Any) -> None:
        def judge(response: Any) -> None:
            for result in response.results:
                check(result.error_code, f"user {result.user!r}", result.error_message)

        await self._change(ALTER_USERS, judge, Repeat.IF_NOT_DONE, **fields)
