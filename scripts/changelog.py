"""Moves the files of `changes/` into CHANGELOG.md at a release: `python scripts/changelog.py 0.2.0`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def collect(root: Path, version: str) -> int:
    """Put all changes into a section of CHANGELOG.md above the other releases, and remove their files.

    Returns how many changes there were.
    """
    page, files = root / "CHANGELOG.md", sorted((root / "changes").glob("*.md"))
    head, found, rest = page.read_text().partition("\n## ")
    if f"\n## {version}\n" in page.read_text():
        raise SystemExit(f"CHANGELOG.md has a section for {version}")
    if not found:
        raise SystemExit("CHANGELOG.md has no section of a release")
    lines = [f"- {file.read_text().strip()}".replace("\n", "\n  ") for file in files]
    page.write_text("\n".join([head, f"## {version}", "", *lines, "", f"## {rest}"]))
    for file in files:
        file.unlink()
    return len(files)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise SystemExit("name the version: python scripts/changelog.py VERSION")
    sys.stdout.write(f"{collect(ROOT, arguments[0])} changes are in CHANGELOG.md\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
