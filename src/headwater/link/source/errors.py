"""Why a link stops on a topic. What was copied stays; nothing of another history is added to it."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import HeadwaterError, Retriable


class SourceStops(HeadwaterError):
    """A link cannot go on with a topic of its source. Retrying does not help; an operator decides."""

    word: ClassVar[str] = "stopped"
    """The kind of reason, for states and metrics."""


class SourceDeleted(SourceStops):
    """The source has no such topic, or fewer partitions than were copied."""

    word = "deleted"


class SourceRecreated(SourceStops):
    """The source has another topic of the same name. Its records are another history."""

    word = "recreated"


class SourceTruncated(SourceStops):
    """The source no longer has the last records that were copied, or has others at their offsets."""

    word = "truncated"

    def __init__(self, message: str, end: int) -> None:
        super().__init__(message)
        self.end = end
        """The offset up to which the source has what was copied; -1 if the source does not know."""


class SourceOvertaken(SourceStops):
    """Retention of the source removed records before they were copied. Going on leaves a gap."""

    word = "overtaken"

    def __init__(self, message: str, log_start: int) -> None:
        super().__init__(message)
        self.log_start = log_start
        """The first offset that the source still has."""


class SourceUnreadable(SourceStops):
    """The source sends records that cannot be copied: an old format, an unknown codec, impossible numbers."""

    word = "unreadable"


class SourceDamaged(Retriable):
    """A batch changed on the way, or in the source: its CRC does not match its bytes. It is fetched again."""


class SourceRefuses(Retriable):
    """The source does not let the link read: a right is missing, or it refuses the request. It may be mended there."""
