"""From .proto texts to descriptors, by protoc.

protoc prints to the process's own output and may end the process, so it runs in a child, with limits on its time,
memory and output. It sees an empty directory with the texts, and the types that Google and Confluent publish; no other
file of the machine can be imported. A call takes about 50 milliseconds and blocks: an event loop calls it in a thread.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from headwater.errors import BadSchema, Overloaded
from headwater.schemas.protobuf import protoc
from headwater.schemas.protobuf.known import CONFLUENT
from headwater.schemas.texts import refuse

PATIENCE = 60.0
"""Seconds after which a compiler that does not end is killed."""

MAX_MESSAGES = 16 << 10
"""The longest output of the compiler that is looked at, in bytes."""

MAX_NAME = 255
"""The longest name of a file, in bytes."""

_NAME = re.compile(r"[A-Za-z0-9_+@=,-][A-Za-z0-9_.+@=,-]*(/[A-Za-z0-9_+@=,-][A-Za-z0-9_.+@=,-]*)*")
_LINE = re.compile(r"([^:]*):(\d+):(\d+): (.*)")
_GOOGLE_TYPE = re.compile(r"google/type/[a-z_]+\.proto")

Compiler = Callable[[str, str, str, str], int]
"""Compiles a file of a directory: the directory, protoc's own types, the file, the output. Messages go to the file
`.messages` of the directory. The answer is an exit code."""


def child(directory: str, well_known: str, name: str, output: str) -> int:
    """Run the compiler in a child process. Raises `Overloaded` if it takes too long."""
    packages = str(Path(_located("grpc_tools")).parent.parent)
    program = [sys.executable, "-I", "-S", protoc.__file__, packages, directory, well_known, name, output]
    with Path(directory, ".messages").open("wb") as messages:
        try:
            return subprocess.run(
                program,
                cwd=directory,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                timeout=PATIENCE,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise Overloaded(f"The compiler of Protobuf schemas did not end within {PATIENCE:.0f} seconds") from None


def compiled(name: str, texts: Mapping[str, str], compiler: Compiler = child) -> bytes:
    """The descriptors of a file and of all that it imports, as the bytes of a FileDescriptorSet."""
    for one in texts:
        if len(one.encode()) > MAX_NAME or _NAME.fullmatch(one) is None:
            raise BadSchema(f"Reference {one[:300]!r} is not a name that a .proto file can import")
    with tempfile.TemporaryDirectory(prefix="headwater-protoc-") as directory:
        try:
            for one, text in {**_published(texts), **texts}.items():
                path = Path(directory, one)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
        except OSError as error:
            raise BadSchema(f"Names of references are in each other's way: {error.strerror}") from error
        except UnicodeEncodeError:
            raise BadSchema("A text of the schema has half of a surrogate pair") from None
        output = Path(directory, ".descriptors")
        well_known = str(Path(_located("grpc_tools")).parent / "_proto")
        code = compiler(directory, well_known, name, str(output))
        if code == 0:
            return output.read_bytes()
        with Path(directory, ".messages").open("rb") as messages:
            said = messages.read(MAX_MESSAGES).decode(errors="replace")
        _refuse(name, directory, said, code)
        raise AssertionError("unreachable")


def _refuse(name: str, directory: str, said: str, code: int) -> None:
    """Raise the first message of the compiler as a `BadSchema`, and say how many more there are."""
    lines = [line.replace(directory + "/", "") for line in said.splitlines() if ": warning: " not in line]
    flaws = [match for line in lines if (match := _LINE.fullmatch(line))]
    if not flaws:
        ends = "it needs too much time or memory" if code < 0 else "; ".join(lines[:3]) or f"exit code {code}"
        raise BadSchema(f"The Protobuf schema cannot be compiled: {ends}")
    file, line, column, flaw = flaws[0].groups()
    where = "The Protobuf schema" if file == name else f"Reference {file!r}"
    more = f" (and {len(flaws) - 1} more)" if len(flaws) > 1 else ""
    refuse(where, f"line {line}, column {column}", f"{flaw}{more}")


def _published(texts: Mapping[str, str]) -> dict[str, str]:
    """Files that Google and Confluent publish and that registries know without a reference."""
    known = dict(CONFLUENT)
    wanted = {name for text in texts.values() for name in _GOOGLE_TYPE.findall(text)}
    if wanted:
        folder = Path(_located("google.type.date_pb2")).parent
        for path in folder.glob("*.proto"):
            known[f"google/type/{path.name}"] = path.read_text()
    return known


def _located(module: str) -> str:
    """The file of an installed module, without importing it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise BadSchema(f"The Python package of {module} is not installed")
    return spec.origin
