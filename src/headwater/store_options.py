"""Settings of object stores that are reached over a network: the section `[object_store]`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.errors import ConfigError

MIB = 1 << 20
CHECKSUMS = ("", "sha256", "crc64nvme")
ENCRYPTIONS = {"": "", "sse-s3": "AES256", "sse-kms": "aws:kms", "sse-kms-dsse": "aws:kms:dsse"}
"""Our names of S3's kinds of server-side encryption, and those that S3 knows."""
MIN_PART_BYTES = 5 * MIB
"""S3 takes no smaller parts, save for the last one."""
ENVIRONMENT = "HEADWATER_OBJECT_STORE__"


class StoreOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a cloud's store is asked. A local directory needs none of this."""

    connect_ms: int = 3_000
    attempt_ms: int = 15_000
    """How long one request may take, its body included."""
    total_ms: int = 60_000
    """How long a call may take, with all that is tried again."""
    retries: int = 10
    backoff_ms: int = 100
    """The first pause is up to so long, each later one up to twice the one before."""
    max_backoff_ms: int = 5_000
    retry_budget: int = 100
    """So many retries may come at once, over all calls; then only as many as come back."""
    retry_budget_per_second: int = 5
    requests: int = 64
    """So many requests are under way at most; others wait for their turn."""
    gets_at_once: int = 16
    """Of one call for several objects."""
    hedge_percent: int = 0
    """At most so many of a hundred reads are asked a second time when their answer is late; 0 for none."""
    hedge_ms: int = 0
    """How late that is; 0 for later than 95 of 100 reads were lately."""
    multipart_bytes: int = 32 * MIB
    """Larger objects are sent in parts, several at once."""
    part_bytes: int = 8 * MIB
    parts_at_once: int = 4
    guard: bool = True
    """Whether WAL objects are stored under the condition that there is none of that name."""
    checksum: str = "sha256"
    """What S3 checks an upload by: sha256, crc64nvme, or nothing but the signature."""
    encryption: str = ""
    """How S3 encrypts what is stored: sse-s3, sse-kms, sse-kms-dsse, or as the bucket says."""
    kms_key: str = ""
    """Which key of the key service, if not the account's own."""
    kms_bucket_key: bool = False
    provider: dict[str, str] = {}
    """Further options of the store by the names of obstore: `endpoint`, `region`, `account_name`, …. Secrets are better
    left to the environment or to a role of the machine."""

    def __repr__(self) -> str:
        """Without the values of `provider`, which may be secrets."""
        fields = (f"{n}={getattr(self, n)!r}" for n in self.__struct_fields__ if n not in ("provider", "kms_key"))
        return f"StoreOptions({', '.join(fields)}, provider={sorted(self.provider)})"

    def variables(self) -> dict[str, str]:
        """What is not as by default, as environment variables: for a child process that opens the store too."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "provider"}
        changed = {name: str(value) for name, value in given.items() if value != getattr(_DEFAULTS, name)}
        changed |= {f"provider__{name}": value for name, value in self.provider.items()}
        return {f"{ENVIRONMENT}{name.upper()}": value for name, value in changed.items()}

    def check(self) -> None:
        """Refuse what cannot work."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                continue
            if value < 0 or (value == 0 and name not in ("retries", "hedge_percent", "hedge_ms")):
                raise ConfigError(f"settings: object_store.{name} must be above 0")
        if self.hedge_percent > 50:
            raise ConfigError("settings: object_store.hedge_percent must be at most 50")
        if self.attempt_ms > self.total_ms:
            raise ConfigError("settings: object_store.attempt_ms must not be above total_ms")
        if self.part_bytes < MIN_PART_BYTES:
            raise ConfigError(f"settings: object_store.part_bytes must be at least {MIN_PART_BYTES}")
        if self.checksum not in CHECKSUMS:
            raise ConfigError(f"settings: object_store.checksum must be one of {CHECKSUMS}")
        if self.encryption not in ENCRYPTIONS:
            raise ConfigError(f"settings: object_store.encryption must be one of {tuple(ENCRYPTIONS)}")
        if (self.kms_key or self.kms_bucket_key) and not self.encryption.startswith("sse-kms"):
            raise ConfigError(
                "settings: object_store.kms_key and kms_bucket_key need encryption sse-kms or sse-kms-dsse"
            )


_DEFAULTS = StoreOptions()


def from_environment(environment: Mapping[str, str] | None = None) -> StoreOptions:
    """The options of a process that is given nothing but its environment, such as a Spark executor."""
    tree: dict[str, Any] = {"provider": {}}
    for name, value in (os.environ if environment is None else environment).items():
        if not name.startswith(ENVIRONMENT):
            continue
        key = name.removeprefix(ENVIRONMENT).lower()
        if key.startswith("provider__"):
            tree["provider"][key.removeprefix("provider__")] = value
        else:
            tree[key] = value
    try:
        options = msgspec.convert(tree, StoreOptions, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"settings: object_store: {error}") from error
    options.check()
    return options
