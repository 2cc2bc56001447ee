"""What `headwater up` prints once it serves: where everything is, and what to try."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.extras import has, sentence

KAFKA, GATEWAY = "127.0.0.1:9092", "http://127.0.0.1:8081"
"""The addresses that commands use unless they are given others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a cluster on one machine serves. An address is empty for what it does not serve."""

    kafka: str
    """The address of the first broker."""
    pages: str
    """The URL of health pages and metrics."""
    gateway: str = ""
    """The URL of the HTTP API."""
    catalog: str = ""
    """The URL of the REST catalog."""
    flight: str = ""
    data: str
    """The data directory."""
    lacks: Sequence[str] = ()
    """Extras that the settings ask for and that are not installed."""
    secured: bool = False
    """Whether callers have to log in, so that no command works as it is."""


def lacking(wanted: Sequence[str]) -> list[str]:
    """The extras that are not installed."""
    return [extra for extra in wanted if not has(extra)]


def text(serving: Serving) -> str:
    """The addresses, the data directory, what is missing, and three commands to copy."""
    rows = [
        ("Kafka", serving.kafka),
        ("HTTP and SQL" if "sql" not in serving.lacks else "HTTP", serving.gateway),
        ("Iceberg REST", serving.catalog),
        ("Flight SQL", serving.flight),
        ("Health", serving.pages),
        ("Data", serving.data),
    ]
    lines = ["", *(f"  {name:<14}{place}" for name, place in rows if place)]
    lines += ["", *(f"  {sentence(extra)}" for extra in serving.lacks)] if serving.lacks else []
    if serving.secured:
        return "\n".join(lines)
    return "\n".join(
        [*lines, "", "  To try it, in another terminal:", "", *(f"    {line}" for line in commands(serving))]
    )


def commands(serving: Serving) -> list[str]:
    """Commands that make a topic and read it."""
    program = program_name()
    broker = "" if serving.kafka == KAFKA else f" --bootstrap {serving.kafka}"
    made = [
        f"{program} topic create orders{broker}",
        f"seq 1000 | {program} produce orders{broker}",
    ]
    if not serving.gateway or "sql" in serving.lacks:
        return [*made, f"{program} consume orders --count 5{broker}"]
    gateway = "" if serving.gateway == GATEWAY else f" --gateway {serving.gateway}"
    return [*made, f'{program} sql "SELECT count(*) FROM orders"{gateway}']


def program_name() -> str:
    """What to type to run this program again."""
    own = Path(sys.argv[0]).absolute()
    if own.name != "headwater":
        return f"{Path(sys.executable).name} -m headwater"
    if shutil.which("headwater") == str(own):
        return "headwater"
    here = Path.cwd()
    return os.path.relpath(own, here) if here in own.parents else str(own)
