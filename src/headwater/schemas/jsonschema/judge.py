"""The program of the child process that judges JSON Schemas and values by them, with limits on its time and memory.

A line of its input is a question, a line of its output the answer. It imports nothing of this package, so that it
starts fast and runs without the installed packages' start-up files. Plain schemas are judged by the same functions in
the process itself.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from typing import Any

MAX_MEMORY = 1 << 30
MAX_SECONDS = 1
"""CPU seconds for one question, at least. The system counts whole seconds."""
KEPT = 64
"""Compiled schemas that are kept."""


def check(schema: Any) -> list[Any] | None:
    """What the metaschema of the draft refuses in a schema: the place, as a list, and the flaw."""
    import jsonschema_rs

    return _flaw(lambda: jsonschema_rs.meta.validate(schema))


def compiled(schema: Any) -> Any:
    """What judges values by a schema. A schema that cannot be compiled is a list, as of `check`."""
    import jsonschema_rs

    made: list[Any] = []
    return _flaw(lambda: made.append(jsonschema_rs.validator_for(schema, offline=True))) or made[0]


def judged(validator: Any, value: Any) -> list[Any] | None:
    """What a schema refuses in a value: the place, as a list, and the flaw."""
    return _flaw(lambda: validator.validate(value))


def matches(pattern: str, name: str) -> bool:
    """Whether a regular expression of JSON Schema finds something in a name."""
    import jsonschema_rs

    try:
        return bool(jsonschema_rs.is_valid({"type": "string", "pattern": pattern}, name))
    except ValueError:  # it needs too many steps
        return False


def _flaw(call: Any) -> list[Any] | None:
    import jsonschema_rs

    try:
        call()
    except jsonschema_rs.ValidationError as error:
        return [list(error.instance_path), str(error.message)[:500]]
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
        return [None, "it is nested too deeply" if "ecursion" in str(error) else str(error)[:500]]
    return None


def answer(question: list[Any], kept: dict[str, Any]) -> Any:
    kind, *given = question
    if kind == "check":
        return check(given[0])
    if kind == "compile":
        made = compiled(given[0])
        return made if isinstance(made, list) else None
    if kind == "matches":
        return matches(*given)
    name, value, *schema = given
    if name not in kept:
        if not schema:
            return "unknown"
        if len(kept) >= KEPT:
            del kept[next(iter(kept))]
        kept[name] = compiled(schema[0])
    return kept[name] if isinstance(kept[name], list) else judged(kept[name], value)


def main() -> None:
    """The argument: where packages are."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MAX_MEMORY if hard == resource.RLIM_INFINITY else min(MAX_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path.insert(0, sys.argv[1])
    kept: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + MAX_SECONDS, hard))
        sys.stdout.buffer.write(json.dumps(answer(json.loads(line), kept)).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
