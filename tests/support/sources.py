"""Sources as syntax trees, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    collects = gc.isenabled()
    gc.disable()  # it would go through all trees again and again, and finds nothing
    try:
        return ast.parse(path.read_text())
    finally:
        if collects:
            gc.enable()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module's tree."""
    return tuple(ast.walk(tree_of(path)))
