"""UpdateFeatures, versions 0 to 2: the cluster's feature level, which selects how commands are applied.

There is one feature, `headwater.level`. It only rises, last of all in an upgrade, once every
process knows the new level.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.faults import code_of
from headwater.broker.registry import Request, Values, api
from headwater.errors import BadInput, HeadwaterError
from headwater.metadata.access import Operation
from headwater.metadata.base import LEVEL
from headwater.metadata.commands import SetLevel

NAME = "headwater.level"
LOWEST = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class InvalidUpdate(BadInput):
    """A feature level that the cluster cannot have."""


@api(57, 0, 2)
async def update_features(broker: Broker, request: Request) -> Values:
    """All updates or none of them."""
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
                await _raise_level(broker, update.max_version_level)
    except InvalidUpdate as error:
        text = f"The update failed for all features since the following feature had an error: {error}"
        return {"error_code": ErrorCode.invalid_update_version, "error_message": text}
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    done = {"error_code": ErrorCode.none, "error_message": None}
    return {**done, "results": [{"feature": update.feature, **done} for update in updates]}


def _check(broker: Broker, version: int, update: Any) -> None:
    level, name = update.max_version_level, update.feature
    invalid = f"Invalid update version {level} for feature {name}."
    downgrade = SAFE_DOWNGRADE if version < 1 and update.allow_downgrade else UPGRADE
    kind = update.upgrade_type if version >= 1 else downgrade
    if name != NAME:
        raise InvalidUpdate(f"{invalid} Local controller {broker.node} does not support this feature.")
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise InvalidUpdate(f"{invalid} The controller does not support the given upgrade type.")
    if not LOWEST <= level <= LEVEL:
        raise InvalidUpdate(f"{invalid} Local controller {broker.node} only supports versions {LOWEST}-{LEVEL}")
    if level < broker.cluster.state.level:
        raise InvalidUpdate(f"{invalid} This feature cannot be downgraded.")


async def _raise_level(broker: Broker, level: int) -> None:
    for replica in broker.domains.values():
        await replica.submit([SetLevel(level)])
    await broker.cluster.submit([SetLevel(level)])
