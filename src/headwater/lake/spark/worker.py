"""A Python worker of Spark lives through many tasks. What Spark does between two of them must cost little."""

from __future__ import annotations

import functools
import gc
import sys
import zipimport


def ease() -> None:
    """Call it at the end of a task, when everything is loaded.

    Before every task Spark has all importers read their directories anew, and those of Spark's own zip files take a
    tenth of a second for it; an importer that is forgotten is made again when somebody imports something. After every
    task it looks through all objects for garbage.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    _keep_what_is_loaded()


@functools.cache
def _keep_what_is_loaded() -> None:
    """Once: modules and compiled loops never become garbage, so nobody needs to look through them."""
    gc.collect()
    gc.freeze()
