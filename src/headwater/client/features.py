"""Feature levels: what brokers know, what the cluster is at, and raising it."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headwater.client.errors import check
from headwater.client.model import FeatureLevels
from headwater.client.routing import Repeat, Router
from headwater.version import __version__

API_VERSIONS, UPDATE_FEATURES = 18, 57
LEVEL = "headwater.level"
_UPGRADE = 1
_TIMEOUT_MS = 20_000


class FeatureCalls(Router):
    """Calls about the feature level of a Headwater cluster."""

    async def levels(self) -> list[FeatureLevels]:
        """What every live broker says of the cluster's feature level. Empty where brokers know no such feature."""

        async def attempt() -> list[FeatureLevels]:
            await self.load_metadata([])
            found = []
            for connection in await self.all_brokers():
                response = await connection.request(
                    API_VERSIONS,
                    within=self.settings.request_s,
                    client_software_name="headwater",
                    client_software_version=__version__,
                )
                known = {f.name: f.max_version for f in response.supported_features}
                final = {f.name: f.max_version_level for f in response.finalized_features}
                if LEVEL in known:
                    found.append(FeatureLevels(connection.address, final.get(LEVEL, 0), known[LEVEL]))
            return found

        return await self.retrying(attempt)

    async def raise_level(self, level: int) -> None:
        """Raise the cluster's feature level. Refused while a process does not know it."""

        async def attempt() -> None:
            connection = await self.controller()
            response: Any = await connection.request(
                UPDATE_FEATURES,
                within=self.settings.request_s,
                timeout=_TIMEOUT_MS,
                feature_updates=[
                    {
                        "feature": LEVEL,
                        "max_version_level": level,
                        "upgrade_type": _UPGRADE,
                        "allow_downgrade": False,
                    }
                ],
                validate_only=False,
            )
            if response.error_code is not ErrorCode.none:
                check(response.error_code, "the cluster's feature level", response.error_message)

        await self.retrying(attempt, repeat=Repeat.ALWAYS)
