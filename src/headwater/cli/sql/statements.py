"""Where statements end: at a semicolon that is in no text, no name and no comment."""

from __future__ import annotations

import re

_TOKENS = re.compile(
    r"""
    '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*`      # texts and names
    | --[^\n]*                                     # comments to the end of the line
    | /\*(?:[^*]|\*(?!/))*\*/                      # comments
    | (\$\w*\$)(?:.|\n)*?\1                        # texts between dollars
    | ; | [^;'"`$/-]+ | .
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN = ("'", '"', "`", "/*", "$")
_COMMENT = re.compile(r"--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/")


def split(text: str) -> tuple[list[str], str]:
    """The statements of a text, without their semicolons, and what comes behind the last one."""
    found: list[str] = []
    begin = at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        assert match is not None  # the last branch takes any character
        token = match[0]
        if token in _OPEN or (token == "/" and text.startswith("/*", at)):
            if _is_open(text, at):
                return found, text[begin:]
        elif token == ";":
            statement = text[begin:at].strip()
            if not is_empty(statement):
                found.append(statement)
            begin = match.end()
        at = match.end()
    return found, text[begin:]


def statements(text: str) -> list[str]:
    """All statements of a text. The last one needs no semicolon."""
    found, rest = split(text)
    return found if is_empty(rest) else [*found, rest.strip()]


def is_empty(text: str) -> bool:
    """Whether there is nothing but space and comments."""
    return not _COMMENT.sub("", text).strip()


def is_finished(text: str) -> bool:
    """Whether a shell should run what was typed: a command, or statements up to a semicolon, or nothing."""
    if text.lstrip().startswith("\\") or is_empty(text):
        return True
    return is_empty(split(text)[1])


def _is_open(text: str, at: int) -> bool:
    """Whether a text, a name or a comment begins here that has no end. A lone dollar begins nothing."""
    return text[at] != "$" or re.match(r"\$\w*\$", text[at:]) is not None
