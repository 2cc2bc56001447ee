"""Settings of object stores over a network: the section `[object_store]`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from headwater.errors import ConfigError

MIB = 1 << 20
CHECKSUMS = ("", "sha256", "crc64nvme")
ENCRYPTIONS = {"": "", "sse-s3": "AES256", "sse-kms": "aws:kms", "sse-kms-dsse": "aws:kms:dsse"}
"""Our names of S3's kinds of server-side encryption, and S3's own."""
MIN_PART_BYTES = 5 * MIB
"""Smallest part that S3 accepts, except for the last one."""
FILE_MODES = ("0600", "0640", "0644", "0660", "0664")
ENVIRONMENT = "HEADWATER_OBJECT_STORE__"


class StoreOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How requests to an object store over a network are made, and who may read a local directory.

    Only `file_mode` is for a local directory."""

    file_mode: str = "0600"
    """Who may read the WAL objects and tables in a local directory, as a mode of files: `0600` Headwater's own user,
    `0640` its group too (`0660` if Spark executors of that group write there), `0644` every user of the machine (`0664`
    likewise). Directories follow it. It holds for new files; an existing directory needs `chmod -R` to be opened.
    Checkpoints in `meta/` are always `0600`."""
    connect_ms: int = 3_000
    """Time limit for opening a connection."""
    attempt_ms: int = 15_000
    """Time limit for one request, body included. At most `total_ms`."""
    total_ms: int = 60_000
    """Time limit for one call with all its retries. After that the call fails."""
    retries: int = 10
    """Retries of one call after failures that may pass. 0 means none."""
    backoff_ms: int = 100
    """The pause before the first retry is a random time up to this. The bound doubles with every retry."""
    max_backoff_ms: int = 5_000
    """Upper limit of that bound."""
    retry_budget: int = 100
    """Retries that may be made in a burst, over all calls. If none is left, a failed call is not retried."""
    retry_budget_per_second: int = 5
    """Retries that are added to the budget every second."""
    requests: int = 64
    """Requests under way at once. Further ones wait in line."""
    gets_at_once: int = 16
    """Reads under way at once for one call that asks for several objects."""
    hedge_percent: int = 0
    """Percentage of reads that may be sent a second time when their answer is late. At most 50; 0 means none."""
    hedge_ms: int = 0
    """When an answer is late. 0 means: later than 95 percent of recent reads."""
    multipart_bytes: int = 32 * MIB
    """Objects above this size are uploaded in parts."""
    part_bytes: int = 8 * MIB
    """Size of a part. S3 allows no less than 5 MiB."""
    parts_at_once: int = 4
    """Parts of one upload that are sent at once."""
    guard: bool = True
    """Whether WAL objects are stored only if no object of that name exists. A store without conditional PUT needs
    `false`."""
    checksum: str = "sha256"
    """Checksum by which S3 verifies uploads: `sha256`, `crc64nvme`, or empty for none but the signature."""
    encryption: str = ""
    """Server-side encryption of S3: `sse-s3`, `sse-kms`, `sse-kms-dsse`. Empty: as the bucket is configured."""
    kms_key: str = ""
    """Key of the key management service. Empty: the account's own. Needs `sse-kms` or `sse-kms-dsse`."""
    kms_bucket_key: bool = False
    """Whether S3 uses a bucket key, which saves requests to the key management service. Needs `sse-kms` or
    `sse-kms-dsse`."""
    provider: dict[str, str] = {}
    """Further options of the store by obstore's names: `endpoint`, `region`, `account_name`, …. Keep secrets in the
    environment or in a role of the machine."""

    def __repr__(self) -> str:
        """Leaves out the values of `provider`, which may be secrets."""
        fields = (f"{n}={getattr(self, n)!r}" for n in self.__struct_fields__ if n not in ("provider", "kms_key"))
        return f"StoreOptions({', '.join(fields)}, provider={sorted(self.provider)})"

    @property
    def mode(self) -> int:
        """`file_mode` as a number."""
        return int(self.file_mode, 8)

    def variables(self) -> dict[str, str]:
        """The options that differ from the defaults, as environment variables for a child process."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "provider"}
        changed = {name: str(value) for name, value in given.items() if value != getattr(_DEFAULTS, name)}
        changed |= {f"provider__{name}": value for name, value in self.provider.items()}
        return {f"{ENVIRONMENT}{name.upper()}": value for name, value in changed.items()}

    def check(self) -> None:
        """Raise `ConfigError` for values that cannot work."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                continue
            if value < 0 or (value == 0 and name not in ("retries", "hedge_percent", "hedge_ms")):
                raise ConfigError(f"settings: object_store.{name} must be above 0")
        if self.file_mode not in FILE_MODES:
            raise ConfigError(f"settings: object_store.file_mode must be one of {FILE_MODES}")
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
    """The options of a process that has only its environment, such as a Spark executor."""
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


def local_path(url: str, scheme: str) -> Path | None:
    """The path in a URL of this scheme; None for other URLs."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == scheme and not parts.netloc else None
