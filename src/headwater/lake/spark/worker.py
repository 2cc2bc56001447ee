"""A Python worker of Spark runs many tasks. This module makes Spark's work between two tasks cheap."""

from __future__ import annotations

import functools
import gc
import sys
import zipimport

from headwater.memory import keep_freed


@functools.cache
def prepare() -> None:
    """Call this before the first task. A worker reads and writes buffers of many megabytes, as brokers do."""
    keep_freed()


def ease() -> None:
    """Call this at the end of a task, when everything is loaded.

    Before every task Spark makes all importers read their directories again, which takes those of Spark's own zip
    files a tenth of a second. An importer that is removed is created again by the next import. After every task Spark
    runs the garbage collector over all objects.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    _keep_what_is_loaded()


@functools.cache
def _keep_what_is_loaded() -> None:
    """Exclude modules and compiled loops from garbage collection, once. They never become garbage."""
    gc.collect()
    gc.freeze()
