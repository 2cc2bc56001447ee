"""Asks what judges JSON Schemas and values: this process for plain ones, a child process with limits for all others.

The library that judges holds the interpreter's lock while it works, and it may work for minutes: schemas that refer to
themselves or are combined in each other are tried in exponentially many ways, and regular expressions need time and
memory to be compiled. So a schema is judged here only if a bound on the work shows that it takes about a millisecond.
The child takes about 50 milliseconds to start; then a question costs about 100 microseconds and what it sends. A call
blocks: an event loop calls it in a thread.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwater.descriptors import readable
from headwater.errors import Overloaded
from headwater.schemas.jsonschema import judge
from headwater.schemas.jsonschema.bundling import follow
from headwater.schemas.jsonschema.keywords import children

MAX_PLAIN_TEXT = 8 << 10
"""The longest text of a schema that is compiled in this process, in characters."""
MAX_WORK = 300_000
"""The most work for a value in this process: its characters times the evaluations for each part of it."""
CHILDREN = 2
"""Child processes: a question that takes all of its time does not hold up all others."""
PATIENCE = 60.0
"""Seconds after which a child that does not answer is killed. Its limit of CPU time ends it far earlier."""
TOO_MUCH = "it needs too much time or memory"

_ENDLESS = 1 << 60
_TRIED = ("anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "contains")
_TIMES = 3
"""How often a schema of these keywords is evaluated, with what is done to find out why nothing fits."""
_PLAIN_PATTERN = re.compile(r"(?:[A-Za-z0-9 ^$.*+?@:/,_&=\[\]-]|\\[dwsDWS.]|\{[0-9]\}){0,100}")


class Children:
    """Child processes that judge. They start when they are needed."""

    def __init__(self) -> None:
        self._free: queue.LifoQueue[subprocess.Popen[bytes] | None] = queue.LifoQueue()
        for _ in range(CHILDREN):
            self._free.put(None)

    def __repr__(self) -> str:
        return f"<Children, {self._free.qsize()} free>"

    def ask(self, *question: Any) -> Any:
        """The answer of a child; `TOO_MUCH` as a flaw if it ended. Raises `Overloaded` if it does not answer."""
        try:
            child = self._free.get(timeout=PATIENCE)
        except queue.Empty:
            raise Overloaded("The judges of JSON Schemas are busy") from None
        try:
            if child is not None and child.poll() is not None:
                _end(child)
                child = None
            child = child or _started()
            try:
                return _asked(child, question)
            except BaseException:
                _end(child)
                child = None
                raise
        except (OSError, EOFError):
            return [None, TOO_MUCH]
        finally:
            self._free.put(child)

    def close(self) -> None:
        """End the children that are free. The others end with this process, with their input."""
        with contextlib.suppress(queue.Empty):
            for _ in range(CHILDREN):
                child = self._free.get_nowait()
                if child is not None:
                    _end(child)


def _started() -> subprocess.Popen[bytes]:
    spec = find_spec("jsonschema_rs")
    assert spec is not None and spec.origin is not None  # `parse` has asked for the extra
    packages = str(Path(spec.origin).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", judge.__file__, packages],
        env={"PATH": os.defpath, "LC_ALL": "C"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _asked(child: subprocess.Popen[bytes], question: tuple[Any, ...]) -> Any:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(json.dumps(question).encode() + b"\n")
    child.stdin.flush()
    if not readable(child.stdout, PATIENCE):
        raise Overloaded(f"The judge of JSON Schemas did not answer within {PATIENCE:.0f} seconds")
    line = child.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


_CHILDREN = Children()
atexit.register(_CHILDREN.close)


def ask(*question: Any) -> Any:
    """The answer of a child process."""
    return _CHILDREN.ask(*question)


def flaw_of(schema: Any, size: int) -> list[Any] | None:
    """What the metaschema of its draft refuses in a schema whose text has so many characters."""
    plain = size <= MAX_PLAIN_TEXT and _has_plain_patterns(schema)
    return judge.check(schema) if plain else _list(ask("check", schema))


def flaw_of_compiling(schema: Any, size: int) -> list[Any] | None:
    """Why a schema cannot be compiled, above all because of a regular expression."""
    if size <= MAX_PLAIN_TEXT and _has_plain_patterns(schema):
        made = judge.compiled(schema)
        return made if isinstance(made, list) else None
    return _list(ask("compile", schema))


def matches(pattern: str, name: str) -> bool:
    """Whether a regular expression of JSON Schema finds something in a name."""
    if _PLAIN_PATTERN.fullmatch(pattern):
        return judge.matches(pattern, name)
    return ask("matches", pattern, name) is True


class Validator:
    """Judges values by one schema. Several threads may use it."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        text = json.dumps(schema)
        plain = len(text) <= MAX_PLAIN_TEXT and _has_plain_patterns(schema)
        self._cost = cost_of(schema) if plain else _ENDLESS
        self._compiled = judge.compiled(schema) if self._cost < MAX_WORK else None
        self._name = hashlib.sha256(text.encode()).hexdigest()

    def is_plain(self, size: int) -> bool:
        """Whether a value whose text has so many characters is judged in this process."""
        return self._cost * size <= MAX_WORK

    def flaw(self, value: Any, size: int) -> list[Any] | None:
        """What the schema refuses in a value whose text has so many characters: the place and the flaw."""
        if self._compiled is not None and self.is_plain(size):
            return judge.judged(self._compiled, value)
        answer = ask("value", self._name, value)
        return _list(ask("value", self._name, value, self._schema) if answer == "unknown" else answer)


def _list(answer: Any) -> list[Any] | None:
    return answer if isinstance(answer, list) else None


def cost_of(schema: Any) -> int:
    """A bound on how many schemas are evaluated for one part of a value. One that refers to itself has none."""
    try:
        return _cost(schema, schema, {})
    except RecursionError:
        return _ENDLESS


def _cost(node: Any, whole: Any, known: dict[int, int]) -> int:
    if not isinstance(node, dict):
        return 1
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = _ENDLESS  # while it is not known, it is one that refers to itself
    if "unevaluatedProperties" in node or "unevaluatedItems" in node:
        return _ENDLESS
    found = 1 + sum(len(one) for one in (node.get("enum"), node.get("required")) if isinstance(one, list))
    if "$ref" in node:
        found += _cost(follow(whole, node["$ref"]), whole, known)
    for child, place in children(node, ""):
        keyword = place.split("/", 2)[1]
        if keyword not in ("definitions", "$defs"):
            found += (_TIMES if keyword in _TRIED else 1) * _cost(child, whole, known)
    known[id(node)] = min(found, _ENDLESS)
    return known[id(node)]


def _has_plain_patterns(schema: Any) -> bool:
    """Whether all regular expressions of a schema are compiled and matched fast."""
    todo = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            patterns = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
            named = node.get("patternProperties")
            patterns += list(named) if isinstance(named, dict) else []
            if not all(_PLAIN_PATTERN.fullmatch(one) for one in patterns):
                return False
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
    return True
