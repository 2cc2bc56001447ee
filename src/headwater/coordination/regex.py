"""Regular expressions of users: RE2's syntax, as in Kafka, matched against whole names; subscriptions by them.

Topic names are plain ASCII, so most differences between the C++ and Java versions of RE2 do not matter. One does: the
Java version refuses `\\C` (a byte), so this module refuses it too. Matching takes linear time in the length of a name
for every expression, and the size and memory of an expression are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import re2

from headwater.coordination.common import GroupError, Topics

MAX_LENGTH = 4096
MAX_MEMORY = 1 << 20
MAX_STEPS = 5_000
"""The size limit of a compiled expression. The slowest one takes a millisecond for the longest name."""


class Pattern(Protocol):
    """A compiled expression."""

    programsize: int

    def fullmatch(self, text: str) -> Match | None: ...


class Match(Protocol):
    """What an expression has matched."""

    def group(self) -> str: ...

    def groups(self, default: str) -> tuple[str, ...]: ...


def compiled(regex: str, groups: bool = False) -> Pattern:
    """Compile an expression, with `groups` one whose matches have them. Raises a `GroupError` in Kafka's words if it is
    not valid."""
    if len(regex) > MAX_LENGTH:
        raise _invalid(regex[:64] + "...", f"it is longer than {MAX_LENGTH} characters")
    if _asks_for_bytes(regex):
        raise _invalid(regex, "invalid escape sequence: \\C")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = not groups
    options.max_mem = MAX_MEMORY
    try:
        pattern: Pattern = re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be compiled"
        raise _invalid(regex, reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
    except UnicodeEncodeError:
        raise _invalid(regex, "invalid UTF-8") from None
    if pattern.programsize > MAX_STEPS:
        raise _invalid(regex, "it is too large")
    return pattern


def _asks_for_bytes(regex: str) -> bool:
    """Whether the expression has the escape `\\C` outside of a `\\Q...\\E` quotation."""
    at = regex.find("\\")
    while 0 <= at < len(regex) - 1:
        escaped = regex[at + 1]
        if escaped == "C":
            return True
        end = regex.find("\\E", at + 2) if escaped == "Q" else at
        if end < 0:
            return False
        at = regex.find("\\", end + 2)
    return False


def _invalid(regex: str, reason: str) -> GroupError:
    return GroupError(
        "invalid_regular_expression", f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."
    )


class Resolver:
    """The topics that the regular expressions of one group match.

    Whether an expression matches a name never changes, so after a change of topics only new names are matched.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._patterns: dict[str, Pattern] = {}
        self._matched: dict[str, frozenset[str]] = {}
        self._names: frozenset[str] = frozenset()
        self._version: int | None = None

    def __repr__(self) -> str:
        return f"Resolver({len(self._patterns)} expressions, {len(self._names)} topics)"

    def check(self, regex: str, used: set[str]) -> None:
        """Refuse an expression that cannot be compiled, or that is one too many for the group."""
        if regex in self._patterns:
            return
        if regex not in used and len(used) >= self.limit:
            raise GroupError("invalid_request", f"The group has {self.limit} regular expressions, which is the limit.")
        compiled(regex)

    def retain(self, regexes: Iterable[str]) -> None:
        """Forget the expressions that no member uses any more."""
        kept = set(regexes)
        for regex in [regex for regex in self._patterns if regex not in kept]:
            del self._patterns[regex]
            self._matched.pop(regex, None)

    def topics(self, regex: str, topics: Topics) -> frozenset[str]:
        """The topics that an expression matches now. Empty if the expression cannot be compiled any more."""
        if self._version != topics.version:
            self._refresh(topics)
        if regex not in self._matched:
            try:
                pattern = self._patterns[regex] = compiled(regex)
            except GroupError:
                return frozenset()
            self._matched[regex] = _matching(pattern, self._names)
        return self._matched[regex]

    def _refresh(self, topics: Topics) -> None:
        names = frozenset(topics.names())
        new = names - self._names
        for regex, matched in self._matched.items():
            self._matched[regex] = (matched & names) | _matching(self._patterns[regex], new)
        self._names, self._version = names, topics.version


def _matching(pattern: Pattern, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if pattern.fullmatch(name) is not None)
