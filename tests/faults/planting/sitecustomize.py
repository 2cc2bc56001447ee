"""Kills duties of a real broker. Python imports this file at its start if its folder is on PYTHONPATH.

While a file with a duty's name is in the folder that HEADWATER_TEST_PLANTS names, a step of that duty raises.
"""

import os
import sys
from pathlib import Path
from typing import Any

PLANTS = os.environ.get("HEADWATER_TEST_PLANTS", "")


def plant(owner: type, method: str, name: str, *, once: bool) -> None:
    """Have a method fail while the file is there; `once` takes the file away."""
    step, file = getattr(owner, method), Path(PLANTS) / name

    async def planted(*arguments: Any) -> Any:
        if file.exists():
            if once:
                file.unlink()
            raise RuntimeError(f"planted into {name}")
        return await step(*arguments)

    setattr(owner, method, planted)


if PLANTS and "broker" in sys.orig_argv:
    from headwater.log.housekeeping import Housekeeper
    from headwater.replica.membership import Membership

    plant(Housekeeper, "round", "housekeeping", once=False)
    plant(Membership, "_watch_peers", "membership", once=True)
