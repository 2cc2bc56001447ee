"""Whether a pattern of `re` needs more than linear time for some text, found out from the pattern alone.

A pattern becomes an automaton with one state for each character class in it. Backtracking takes exponential time if one
word leads from a state back to itself in two ways, and polynomial time if one word leads from a state p to p, from p to
another state q, and from q to q. Both are searched for in products of the automaton with itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ALPHABET = [*map(chr, range(128)), "\x85", "\u00e9", "\u0661", "\u2028", "\u202a", "\ufeff"]
"""One character of each kind that the classes of patterns tell apart."""
_COPIES = 2
"""A bounded repeat is written out so often: what it adds is a constant."""
_CATEGORIES = {
    c.CATEGORY_DIGIT: str.isdecimal,
    c.CATEGORY_SPACE: str.isspace,
    c.CATEGORY_WORD: lambda one: one.isalnum() or one == "_",
}
_OPPOSITES = {
    c.CATEGORY_NOT_DIGIT: c.CATEGORY_DIGIT,
    c.CATEGORY_NOT_SPACE: c.CATEGORY_SPACE,
    c.CATEGORY_NOT_WORD: c.CATEGORY_WORD,
}


class Unknown(Exception):
    """A part of a pattern that is not judged, such as a reference to a group."""


@dataclass
class _Part:
    """A part of an automaton: the states it can begin and end with, and whether it takes nothing, too."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    empty: bool = True


class _Automaton:
    def __init__(self) -> None:
        self.takes: list[int] = []
        """By state what it takes: a bit for each character of the alphabet."""
        self.edges: Counter[tuple[int, int]] = Counter()
        """How many ways lead from one state directly to another one."""

    def leaf(self, takes: Iterable[str]) -> _Part:
        self.takes.append(sum(1 << ALPHABET.index(one) for one in takes))
        state = [len(self.takes) - 1]
        return _Part(state, state, False)

    def joined(self, parts: Iterable[_Part]) -> _Part:
        whole = _Part()
        for part in parts:
            self.edges.update((one, other) for one in whole.last for other in part.first)
            whole = _Part(
                whole.first + (part.first if whole.empty else []),
                part.last + (whole.last if part.empty else []),
                whole.empty and part.empty,
            )
        return whole

    def sequence(self, items: Any, ignore: bool) -> _Part:
        return self.joined([self.item(kind, value, ignore) for kind, value in items])

    def item(self, kind: Any, value: Any, ignore: bool) -> _Part:
        if kind in (c.LITERAL, c.NOT_LITERAL, c.IN, c.ANY):
            return self.leaf(one for one in ALPHABET if _takes(kind, value, one, ignore))
        if kind in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            least, most, inner = value
            if most is not c.MAXREPEAT:
                parts = [self.sequence(inner, ignore) for _ in range(min(most, _COPIES))]
                for part in parts[min(least, _COPIES) :]:
                    part.empty = True
                return self.joined(parts)
            part = self.sequence(inner, ignore)
            self.edges.update((one, other) for one in part.last for other in part.first)
            part.empty = part.empty or least == 0
            return part
        if kind is c.SUBPATTERN:
            return self.sequence(value[3], ignore)
        if kind is c.ATOMIC_GROUP:
            return self.sequence(value, ignore)
        if kind is c.BRANCH:
            parts = [self.sequence(branch, ignore) for branch in value[1]]
            first, last = ([state for part in parts for state in getattr(part, side)] for side in ("first", "last"))
            return _Part(first, last, any(part.empty for part in parts))
        if kind is c.AT:
            return _Part()
        if kind in (c.ASSERT, c.ASSERT_NOT):
            if value[1].getwidth()[1] > 100:
                raise Unknown("a long look around")
            return _Part()
        raise Unknown(str(kind))


def _takes(kind: Any, value: Any, one: str, ignore: bool) -> bool:
    forms = {one, one.lower(), one.upper()} if ignore else {one}
    if kind is c.ANY:
        return True  # the flag DOTALL only adds the newline
    if kind is c.LITERAL:
        return chr(value) in forms
    if kind is c.NOT_LITERAL:
        return chr(value) not in forms
    return any(_is_in(value, form) for form in forms)


def _is_in(items: Any, one: str) -> bool:
    negated, found = False, False
    for kind, value in items:
        if kind is c.NEGATE:
            negated = True
        elif kind is c.LITERAL:
            found = found or ord(one) == value
        elif kind is c.RANGE:
            found = found or value[0] <= ord(one) <= value[1]
        elif value in _OPPOSITES:
            found = found or not _CATEGORIES[_OPPOSITES[value]](one)
        else:
            found = found or _CATEGORIES[value](one)
    return found != negated


def flaw_of(pattern: str | bytes, flags: int = 0, anywhere: bool = False) -> str:
    """Why a pattern may need more than linear time; empty if it does not. `anywhere` is for a search."""
    tree = parser.parse(pattern, flags)
    own = _Automaton()
    try:
        part = own.sequence(tree, bool((flags | tree.state.flags) & re.IGNORECASE))
    except Unknown as error:
        return f"it has a part that is not judged: {error}"
    if anywhere:
        before = own.leaf(ALPHABET)
        own.edges.update((before.last[0], state) for state in (*before.first, *part.first))
    after: dict[int, set[int]] = {state: set() for state in range(len(own.takes))}
    for one, other in own.edges:
        after[one].add(other)
    reached = {state: _reached(after, state) for state in after}
    loops = [state for state in after if state in reached[state]]
    ends = set(part.last) if anywhere and not _has_end(tree) else set()
    """A search that comes to one of these has found something, and tries no other place."""
    for (one, other), ways in own.edges.items():
        if ways > 1 and one in reached[other]:
            return "a repeat has itself in it"
    for p in loops:
        if _is_doubled(own, after, reached, p):
            return "one word leads round a repeat in two ways"
        for q in loops:
            if p != q and q not in ends and q in reached[p] and _is_shared(own, after, reached, p, q):
                return f"two repeats take the same: {_shown(own.takes[p])} and {_shown(own.takes[q])}"
    return ""


def _has_end(tree: Any) -> bool:
    return "AT_END" in repr(tree) or "AT_BOUNDARY" in repr(tree) or "ASSERT" in repr(tree)


def _shown(takes: int) -> str:
    return repr("".join(one for at, one in enumerate(ALPHABET) if takes >> at & 1)[-20:])


def _reached(after: dict[int, set[int]], start: int) -> set[int]:
    seen: set[int] = set()
    todo = [start]
    while todo:
        for state in after[todo.pop()] - seen:
            seen.add(state)
            todo.append(state)
    return seen


def _is_doubled(own: _Automaton, after: dict[int, set[int]], reached: dict[int, set[int]], p: int) -> bool:
    """Whether two different ways lead from a state to itself by one word."""
    seen, todo = set(), [(p, p, False)]
    while todo:
        one, other, apart = todo.pop()
        for a in after[one]:
            for b in after[other]:
                if p not in reached[a] | {a} or p not in reached[b] | {b} or not own.takes[a] & own.takes[b]:
                    continue
                here = (a, b, apart or a != b)
                if here == (p, p, True):
                    return True
                if here not in seen:
                    seen.add(here)
                    todo.append(here)
    return False


def _is_shared(own: _Automaton, after: dict[int, set[int]], reached: dict[int, set[int]], p: int, q: int) -> bool:
    """Whether one word leads from p to p, from p to q, and from q to q."""
    seen, todo = set(), [(p, p, q)]
    while todo:
        one, middle, other = todo.pop()
        for a in after[one]:
            if p not in reached[a]:
                continue
            for z in after[other]:
                both = own.takes[a] & own.takes[z]
                if not both or q not in reached[z]:
                    continue
                for b in after[middle]:
                    here = (a, b, z)
                    if here in seen or not both & own.takes[b] or q not in reached[b] | {b}:
                        continue
                    if here == (p, q, q):
                        return True
                    seen.add(here)
                    todo.append(here)
    return False
