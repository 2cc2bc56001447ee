"""Compatibility levels and modes, global and of a subject, and questions whether a schema is compatible."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.params import QueryParameter

from headwater.errors import SchemaReason, SchemaRefused
from headwater.gateway.registry.forms import GivenSchema
from headwater.gateway.registry.frame import (
    TAG,
    Frame,
    Normalize,
    SubjectName,
    TheFrame,
    VersionText,
    answer,
    body_of,
    number_of,
    plain,
    taking,
)
from headwater.gateway.registry.subjects import read_draft
from headwater.replica.schema_errors import no_subject, no_version
from headwater.replica.schema_sources import LATEST
from headwater.schemas.compatibility import Level
from headwater.state.cluster.access import Operation
from headwater.state.cluster.schemas import NO_SETTINGS
from headwater.state.commands.schemas import GLOBAL, SchemaMode, SchemaSettings

Default = Annotated[
    bool, QueryParameter(name="defaultToGlobal", description="The global value, if the subject has none of its own.")
]
Force = Annotated[bool, QueryParameter(description="Switch to IMPORT although there are schemas.")]
Verbose = Annotated[bool, QueryParameter(description="Also say why a schema is not compatible.")]
UNSUPPORTED = (
    "alias", "aliasForDeks", "compatibilityGroup", "compatibilityPolicy", "defaultMetadata", "overrideMetadata",
    "defaultRuleSet", "overrideRuleSet", "validateFields", "validateRules", "validateNewSchemas",
)  # fmt: skip
"""Settings of Confluent's registry that would change what is stored or accepted, and that are not supported."""


class GivenSettings(msgspec.Struct, frozen=True):
    """Settings to change. What is missing stays; null removes it."""

    compatibility: str | msgspec.UnsetType | None = msgspec.UNSET
    """The compatibility level: NONE, BACKWARD, FORWARD, FULL, or with `_TRANSITIVE`."""
    normalize: bool | msgspec.UnsetType | None = msgspec.UNSET
    """Whether schemas are normalized before they are compared and stored."""


class PutSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings after a change."""

    compatibility: str | None = None
    """The compatibility level."""
    normalize: bool | None = None
    """Whether schemas are normalized before they are compared and stored."""


class ToldSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Settings, as clients get them."""

    compatibility_level: str | None = None
    """The compatibility level."""
    normalize: bool | None = None
    """Whether schemas are normalized before they are compared and stored."""


class GivenMode(msgspec.Struct, frozen=True):
    """A mode."""

    mode: str | None = None
    """READWRITE, READONLY, READONLY_OVERRIDE or IMPORT."""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a schema is compatible."""

    is_compatible: bool = msgspec.field()
    """Whether the schema is compatible."""
    messages: list[str] | None = None
    """With `verbose`, why it is not."""


@get("/config", operation_id="describeCompatibility", tags=[TAG])
async def describe_config(frame: TheFrame) -> Response[ToldSettings]:
    """The global settings."""
    frame.need_global(Operation.DESCRIBE)
    await frame.services.catch_up()
    return answer(_told(frame.registry.settings(GLOBAL)))


@put("/config", operation_id="changeCompatibility", tags=[TAG], opt=taking(GivenSettings))
async def change_config(request: Request[Any, Any, Any], frame: TheFrame) -> Response[PutSettings]:
    """Change the global settings."""
    frame.need_global(Operation.ALTER)
    return await _change(request, frame, GLOBAL)


@delete("/config", operation_id="resetCompatibility", tags=[TAG], status_code=200)
async def reset_config(frame: TheFrame) -> Response[ToldSettings]:
    """Set the global settings back to what they are by default. The answer has what they were."""
    frame.need_global(Operation.ALTER)
    await frame.services.catch_up()
    before = frame.registry.settings(GLOBAL)
    await frame.registry.set_settings(GLOBAL, lambda _: NO_SETTINGS)
    return answer(_told(before))


@get("/config/{subject:str}", operation_id="describeSubjectCompatibility", tags=[TAG])
async def describe_subject_config(
    frame: TheFrame, subject: SubjectName, default_to_global: Default = False
) -> Response[ToldSettings]:
    """The settings of a subject."""
    name = plain(subject)
    frame.need_sight(name)
    await frame.services.catch_up()
    if default_to_global:
        return answer(_told(frame.registry.settings(name)))
    own = frame.registry.schemas.subjects.get(name)
    if own is None or own.settings == NO_SETTINGS:
        raise SchemaRefused(
            SchemaReason.NO_COMPATIBILITY, f"Subject '{name}' does not have subject-level compatibility configured"
        )
    return answer(_told(own.settings))


@put("/config/{subject:str}", operation_id="changeSubjectCompatibility", tags=[TAG], opt=taking(GivenSettings))
async def change_subject_config(
    request: Request[Any, Any, Any], frame: TheFrame, subject: SubjectName
) -> Response[PutSettings]:
    """Change the settings of a subject."""
    name = plain(subject)
    frame.need_write(name)
    return await _change(request, frame, name)


@delete("/config/{subject:str}", operation_id="deleteSubjectCompatibility", tags=[TAG], status_code=200)
async def delete_subject_config(frame: TheFrame, subject: SubjectName) -> Response[ToldSettings]:
    """Remove the settings of a subject. The answer has what they were."""
    name = plain(subject)
    frame.need_write(name)
    await frame.services.catch_up()
    own = frame.registry.schemas.subjects.get(name)
    if own is None or own.settings == NO_SETTINGS:
        raise no_subject(name)
    before = own.settings
    await frame.registry.set_settings(name, lambda _: NO_SETTINGS)
    return answer(_told(before))


@get("/mode", operation_id="describeMode", tags=[TAG])
async def describe_mode(frame: TheFrame) -> Response[GivenMode]:
    """The global mode."""
    frame.need_global(Operation.DESCRIBE)
    await frame.services.catch_up()
    return answer(GivenMode(frame.registry.mode(GLOBAL)))


@put("/mode", operation_id="changeMode", tags=[TAG], opt=taking(GivenMode))
async def change_mode(request: Request[Any, Any, Any], frame: TheFrame, force: Force = False) -> Response[GivenMode]:
    """Set the global mode."""
    frame.need_global(Operation.ALTER)
    return await _set_mode(request, frame, GLOBAL, force)


@delete("/mode", operation_id="resetMode", tags=[TAG], status_code=200)
async def reset_mode(frame: TheFrame) -> Response[GivenMode]:
    """Set the global mode back to READWRITE. The answer has what it was."""
    frame.need_global(Operation.ALTER)
    await frame.services.catch_up()
    before = frame.registry.mode(GLOBAL)
    await frame.registry.set_mode(GLOBAL, None)
    return answer(GivenMode(before))


@get("/mode/{subject:str}", operation_id="describeSubjectMode", tags=[TAG])
async def describe_subject_mode(
    frame: TheFrame, subject: SubjectName, default_to_global: Default = False
) -> Response[GivenMode]:
    """The mode of a subject."""
    name = plain(subject)
    frame.need_sight(name)
    await frame.services.catch_up()
    own = frame.registry.schemas.subjects.get(name)
    if default_to_global:
        return answer(GivenMode(frame.registry.mode(name)))
    if own is None or own.mode is None:
        raise SchemaRefused(SchemaReason.NO_MODE, f"Subject '{name}' does not have subject-level mode configured")
    return answer(GivenMode(own.mode))


@put("/mode/{subject:str}", operation_id="changeSubjectMode", tags=[TAG], opt=taking(GivenMode))
async def change_subject_mode(
    request: Request[Any, Any, Any], frame: TheFrame, subject: SubjectName, force: Force = False
) -> Response[GivenMode]:
    """Set the mode of a subject. The caller needs the right to ALTER the cluster, too: modes are its operator's."""
    name = plain(subject)
    frame.need_write(name)
    frame.need_global(Operation.ALTER)
    return await _set_mode(request, frame, name, force)


@delete("/mode/{subject:str}", operation_id="deleteSubjectMode", tags=[TAG], status_code=200)
async def delete_subject_mode(frame: TheFrame, subject: SubjectName) -> Response[GivenMode]:
    """Remove the mode of a subject. The answer has what it was.

    The caller needs the right to ALTER the cluster, too.
    """
    name = plain(subject)
    frame.need_write(name)
    frame.need_global(Operation.ALTER)
    await frame.services.catch_up()
    own = frame.registry.schemas.subjects.get(name)
    if own is None or own.mode is None:
        raise no_subject(name)
    before = own.mode
    await frame.registry.set_mode(name, None)
    return answer(GivenMode(before))


@post(
    "/compatibility/subjects/{subject:str}/versions",
    operation_id="checkCompatibility",
    tags=[TAG],
    status_code=200,
    opt=taking(GivenSchema),
)
async def compare_all(
    request: Request[Any, Any, Any],
    frame: TheFrame,
    subject: SubjectName,
    normalize: Normalize = False,
    verbose: Verbose = False,
) -> Response[Verdict]:
    """Whether a schema could be registered as the next version, by the compatibility level of the subject."""
    name = plain(subject)
    draft = await read_draft(request, frame)
    frame.need_read(name)
    await frame.services.catch_up()
    own = frame.registry.schemas.subjects.get(name)
    flaws = await frame.registry.check(name, draft, own.live if own is not None else [], normalize)
    return answer(Verdict(not flaws, flaws if verbose else None))


@post(
    "/compatibility/subjects/{subject:str}/versions/{version:str}",
    operation_id="checkCompatibilityWithVersion",
    tags=[TAG],
    status_code=200,
    opt=taking(GivenSchema),
)
async def compare_one(
    request: Request[Any, Any, Any],
    frame: TheFrame,
    subject: SubjectName,
    version: VersionText,
    normalize: Normalize = False,
    verbose: Verbose = False,
) -> Response[Verdict]:
    """Whether a schema is compatible with one version, by the compatibility level of the subject."""
    name = plain(subject)
    draft = await read_draft(request, frame)
    frame.need_read(name)
    await frame.services.catch_up()
    number = number_of(version)
    own = frame.registry.schemas.subjects.get(name)
    live = own.live if own is not None else []
    chosen = live[-1:] if number == LATEST else [v for v in live if v.version == number]
    if not chosen and number != LATEST:
        raise no_version(number)
    flaws = await frame.registry.check(name, draft, chosen, normalize)
    return answer(Verdict(not flaws, flaws if verbose else None))


async def _change(request: Request[Any, Any, Any], frame: Frame, name: str) -> Response[PutSettings]:
    raw = await body_of(request, dict[str, msgspec.Raw])
    unknown = [field for field in UNSUPPORTED if bytes(raw.get(field, msgspec.Raw(b"null"))) != b"null"]
    if unknown:
        raise SchemaRefused(SchemaReason.NOT_PERMITTED, f"This registry does not support {', '.join(unknown)}")
    given = await body_of(request, GivenSettings)
    level = given.compatibility
    if isinstance(level, str) and level.upper() not in Level.__members__:
        raise SchemaRefused(
            SchemaReason.BAD_COMPATIBILITY,
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
            "forward_transitive, and full_transitive",
        )

    def changed(before: SchemaSettings) -> SchemaSettings:
        return SchemaSettings(
            before.compatibility if level is msgspec.UNSET else level.upper() if isinstance(level, str) else None,
            before.normalize if isinstance(given.normalize, msgspec.UnsetType) else given.normalize,
        )

    after = await frame.registry.set_settings(name, changed)
    return answer(PutSettings(after.compatibility, after.normalize))


async def _set_mode(request: Request[Any, Any, Any], frame: Frame, name: str, force: bool) -> Response[GivenMode]:
    given = await body_of(request, GivenMode)
    if given.mode is not None and given.mode.upper() not in SchemaMode.__members__:
        names = ", ".join(SchemaMode.__members__)
        raise SchemaRefused(SchemaReason.BAD_MODE, f"Invalid mode. Valid values are {names}")
    mode = SchemaMode(given.mode.upper()) if given.mode is not None else None
    await frame.registry.set_mode(name, mode, force)
    return answer(given)


def _told(settings: SchemaSettings) -> ToldSettings:
    return ToldSettings(settings.compatibility, settings.normalize)


ROUTES = (
    describe_config,
    change_config,
    reset_config,
    describe_subject_config,
    change_subject_config,
    delete_subject_config,
    describe_mode,
    change_mode,
    reset_mode,
    describe_subject_mode,
    change_subject_mode,
    delete_subject_mode,
    compare_all,
    compare_one,
)
