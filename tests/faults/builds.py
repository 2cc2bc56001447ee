"""Other builds of Headwater, as copies of sources."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.tools import ROOT

HERE = ROOT / "src"


def take_compiled(source: Path) -> None:
    """Give a copy of the sources the compiled code that is here, for every file that is the same.

    Otherwise each process of that build would compile all modules and kernels, which takes longer than the test.
    """
    for own in (HERE / "headwater").rglob("*.py"):
        copy = source / own.relative_to(HERE)
        if not copy.exists() or copy.read_bytes() != own.read_bytes():
            continue
        shutil.copystat(own, copy)  # compiled code belongs to a file with this time
        compiled = copy.parent / "__pycache__"
        compiled.mkdir(exist_ok=True)
        for file in (own.parent / "__pycache__").glob(f"{own.stem}.*"):
            shutil.copy2(file, compiled)
