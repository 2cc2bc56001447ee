"""The promises that a test holds, by the ids that `docs/internals/promises.md` defines.

`@promise("T17")` marks one test. A module whose tests hold a promise together says `PROMISES = ("T17",)`; so does a
program of the soak. `pytest -m "promise(T17=True)"` runs the tests of a promise.
"""

from __future__ import annotations

import pytest


def promise(*ids: str) -> pytest.MarkDecorator:
    """Mark a test, or a class of tests, with the promises that it holds."""
    return pytest.mark.promise(*ids, **dict.fromkeys(ids, True))
