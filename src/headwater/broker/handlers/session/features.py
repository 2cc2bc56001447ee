"""UpdateFeatures, versions 0 to 2: the cluster's feature level, which selects how commands are applied.

The feature `headwater.level` only rises, as the last step of an upgrade. `apply` refuses a level that a live process
does not know. Kafka's own features, by which clients decide what a cluster can do, have fixed versions.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import Coded, code_of
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.errors import HeadwaterError
from headwater.replica.levels import raise_level
from headwater.state.cluster.access import Operation
from headwater.state.machine import LEVEL, LOWEST
from headwater.state.results import Refused

NAME = "headwater.level"
FIXED = {"group.version": 1, "metadata.version": 30}
"""Kafka's features: groups of KIP-848, and the metadata version of Kafka 4.3, whose protocol this is. The others
(share groups, streams groups, eligible leader replicas) have version 0, which is not shown."""
TRANSACTIONS = "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def fixed(broker: Broker) -> dict[str, int]:
    """Kafka's features with the versions that they have here."""
    return {**FIXED, TRANSACTIONS: broker.settings.transactions.version}


@api(57, 0, 2)
async def update_features(broker: Broker, request: Request) -> Values:
    """Apply all updates or none of them."""
    body = request.body
    updates = body.feature_updates
    try:
        broker.check_cluster(request, Operation.ALTER)
        broker.check_contact()
        await broker.cluster.barrier()
        for update in updates:
            _check(broker, request.version, update)
        if not (request.version >= 1 and body.validate_only):
            for update in updates:
                if update.feature == NAME:
                    await _raise_level(broker, update.max_version_level)
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    done = {"error_code": ErrorCode.none, "error_message": None}
    return {**done, "results": [{"feature": update.feature, **done} for update in updates]}


def _check(broker: Broker, version: int, update: Any) -> None:
    level, name = update.max_version_level, update.feature
    invalid = f"Invalid update version {level} for feature {name}."
    downgrade = SAFE_DOWNGRADE if version < 1 and update.allow_downgrade else UPGRADE
    kind = update.upgrade_type if version >= 1 else downgrade
    known = fixed(broker)
    if name not in (NAME, *known):
        raise _invalid(f"{invalid} Local controller {broker.node} does not support this feature.")
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(f"{invalid} The controller does not support the given upgrade type.")
    lowest, highest = (LOWEST, LEVEL) if name == NAME else (known[name], known[name])
    if not lowest <= level <= highest:
        raise _invalid(f"{invalid} Local controller {broker.node} only supports versions {lowest}-{highest}")
    if name == NAME and level < broker.cluster.state.level:
        raise _invalid(f"{invalid} This feature cannot be downgraded.")


def _invalid(text: str) -> Coded:
    """The error for a feature level that the cluster cannot have."""
    whole = f"The update failed for all features since the following feature had an error: {text}"
    return Coded(ErrorCode.invalid_update_version, whole)


async def _raise_level(broker: Broker, level: int) -> None:
    result = await raise_level(broker.cluster, broker.domains, level)
    if isinstance(result, Refused):
        raise _invalid(f"Invalid update version {level} for feature {NAME}. {result.detail}")
