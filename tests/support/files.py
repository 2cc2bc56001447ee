"""Files below a directory."""

from pathlib import Path

from headwater.objects.local import TEMPORARY


def temporary_files(root: Path) -> list[Path]:
    """What a local store at `root` has under way, or left behind."""
    return [path for path in (root / TEMPORARY).rglob("*") if path.is_file()]
