"""A Python worker of Spark that is used again pays little for what it has loaded."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.promise import promise

PROMISES = ("T12",)

PROGRAM = """
import gc, importlib, sys, zipimport
from headwater.lake.spark.worker import ease

sys.path.insert(0, sys.argv[1])
import first
assert any(isinstance(i, zipimport.zipimporter) for i in sys.path_importer_cache.values())
ease()
assert not any(isinstance(i, zipimport.zipimporter) for i in sys.path_importer_cache.values())
kept = gc.get_freeze_count()
assert kept > 1_000, kept
importlib.invalidate_caches()
import second
assert (first.NAME, second.NAME) == ("first", "second")
later = [[] for _ in range(1_000)]
ease()
assert gc.get_freeze_count() == kept, "what comes later can still become garbage"
"""


@promise("T12")
def test_importers_of_zip_files_are_forgotten_and_loaded_objects_kept(tmp_path: Path) -> None:
    """Modules in zip files can still be imported afterwards; objects are set aside once only."""
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("first", "second"):
            file.writestr(f"{name}.py", f"NAME = {name!r}")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(archive)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
