"""What a command says that was given a place without a cluster."""

from __future__ import annotations

from headwater.errors import ConfigError
from headwater.ledger.local import local_files
from headwater.settings.addresses import without_secrets
from headwater.settings.settings import Settings


def no_cluster(settings: Settings) -> ConfigError:
    """The error of a command that was given a place without a cluster."""
    files = local_files(settings.ledger_url)
    place = without_secrets(settings.ledger_url) if files is None else str(files.path)
    return ConfigError(
        f"no cluster here: the ledger {place} has no records; name the directory of a cluster with --data or its "
        "settings with --config, or start a cluster with `headwater up`"
    )
