"""`headwater`, as a command and as `python -m headwater`."""

from __future__ import annotations

import sys

from headwater.extras import missing


def main() -> None:
    """Run the command line, or say how to add it."""
    try:
        from headwater.cli.main import main as run
    except ModuleNotFoundError as error:
        lacking = missing(error)
        if lacking is None:
            raise
        sys.exit(f"headwater: {lacking}")
    run()


if __name__ == "__main__":
    main()
