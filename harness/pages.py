"""HTTP pages of processes, and the metrics in them."""

from __future__ import annotations

import re
import urllib.error
import urllib.request


def get_page(address: str, path: str, within: float = 30) -> tuple[int, str]:
    """The status and body of a page."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=within) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric_of(page: str, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(map(float, re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)))
