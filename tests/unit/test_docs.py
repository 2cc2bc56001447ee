"""The docs say what the code does: derived parts are current, and every command and page is written up."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_script", ROOT / "scripts" / "docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_script"] = module
    spec.loader.exec_module(module)
    return module


DOCS = _docs()


@pytest.mark.parametrize("page", DOCS.PAGES)
def test_derived_parts_are_current(page: str) -> None:
    text = (ROOT / page).read_text()
    assert DOCS.render(page, text) == text, "run `make docs`"


def test_every_command_is_written_up() -> None:
    from headwater.cli import acl, cluster, consume, main, produce, table, topic, user

    for module in (topic, produce, consume, table, user, acl, cluster):
        module.register(main.app)
    names = {c.name or c.callback.__name__ for c in main.app.registered_commands if c.callback and not c.hidden}
    names |= {group.name for group in main.app.registered_groups if group.name}
    text = "".join(p.read_text() for p in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    missing = {name for name in names if f"headwater {name}" not in text}
    assert not missing


def test_every_make_target_is_listed() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    assert targets == set(re.findall(r"^([a-z-]+):.*##", makefile, re.M)), "a target without a line for `make help`"
