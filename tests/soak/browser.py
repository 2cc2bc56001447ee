"""The page of the HTTP API, `/docs` of a real gateway, in a real browser that reaches nothing but the gateway.

The page shows every call of the document with its examples, in a light and a dark window and in a narrow one. It asks
for nothing but its own files, the browser has no complaint, the search finds calls, links open them, and the examples
of calls that only look work as they are shown.

python -m tests.soak.browser
"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from harness.tools import TOOLS, needs
from tests.soak.common import Verdict, workplace
from tests.support.running import Running

PROMISES = ("H2",)

PLAYWRIGHT = TOOLS / "browser"
CALLS = "main section > details"
"""Where the page has the calls."""
METHODS = ("get", "post", "put", "patch", "delete")
WINDOWS: tuple[tuple[int, str], ...] = ((1280, "light"), (1280, "dark"), (400, "light"))
"""Widths in pixels, and colours."""
SECURED = """
[security]
acls = true
[security.http]
authentication = "basic"
"""


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    program = shutil.which("chromium")
    needs("Chromium and playwright: run scripts/setup-tools browser", program is not None and PLAYWRIGHT.exists())
    sys.path.append(str(PLAYWRIGHT))
    with importlib.import_module("playwright.sync_api").sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


class Seen:
    """One page, and what the browser did for it."""

    def __init__(self, browser: Any, url: str, width: int, colours: str) -> None:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=colours)
        self.page = context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"{request.url} failed"))
        self.page.on("response", lambda answer: self._answered(answer))
        self.page.goto(url, wait_until="networkidle")

    def _answered(self, answer: Any) -> None:
        if answer.status >= 400:
            self.complaints.append(f"{answer.url}: {answer.status}")


def calls_of(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each call, by its id."""
    return {
        call["operationId"]: (method.upper(), path, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        if method in METHODS
    }


def check_page(seen: Seen, document: dict[str, Any], url: str) -> None:
    """Everything of the document is there, and nothing came from elsewhere."""
    page, calls = seen.page, calls_of(document)
    assert page.title() == "Headwater HTTP API"
    shown = page.eval_on_selector_all(CALLS, "nodes => nodes.map((node) => node.id)")
    assert sorted(shown) == sorted(calls), set(shown) ^ set(calls)
    linked = page.eval_on_selector_all("#contents a", "nodes => nodes.map((node) => node.getAttribute('href'))")
    assert sorted(linked) == sorted(f"#{name}" for name in calls)
    texts = dict(page.eval_on_selector_all(CALLS, "nodes => nodes.map((node) => [node.id, node.textContent])"))
    for name, (method, path, call) in calls.items():
        assert method in texts[name] and path in texts[name] and call["summary"] in texts[name], name
        assert "curl" in texts[name] and "undefined" not in texts[name] and "[object" not in texts[name], name
        for one in call.get("parameters", ()):
            assert one["name"] in texts[name], (name, one)
        for status in call["responses"]:
            assert status in texts[name], (name, status)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it is wider than the window"
    assert {address.partition("/docs")[0].removesuffix("/openapi.json") for address in seen.asked} == {url}, seen.asked
    assert seen.complaints == []


def check_use(seen: Seen, document: dict[str, Any]) -> None:
    """The search and the links."""
    page = seen.page
    page.fill("#search", "describeTopic")
    visible = page.eval_on_selector_all(CALLS, "nodes => nodes.filter((n) => !n.hidden).map((n) => n.id)")
    assert "describeTopic" in visible and len(visible) < len(calls_of(document)) / 4, visible
    page.fill("#search", "")
    page.click("#contents a[href='#describeTopic']")
    assert page.eval_on_selector("#describeTopic", "node => node.open")
    page.click("#describeTopic > summary")
    assert not page.eval_on_selector("#describeTopic", "node => node.open")
    assert seen.complaints == []


def tried(seen: Seen, document: dict[str, Any]) -> int:
    """Run the shown examples of calls that only look, by curl; returns how many. An answer that goes on is cut off."""
    count = 0
    for name, (method, _, _) in calls_of(document).items():
        command = seen.page.eval_on_selector(f"#{name} > pre", "node => node.textContent")
        words = shlex.split(command)
        assert words[0] == "curl", command
        if method != "GET":
            continue
        more = ["--silent", "--max-time", "20", "--noproxy", "*", "--output", "/dev/null"]
        more += ["--write-out", "%{http_code}"]
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=False)
        status = int(done.stdout or 0)
        assert 200 <= status < 500 and status not in (400, 405), (command, status)
        count += 1
    return count


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    verdict = Verdict("the page of the HTTP API")
    with workplace("browser") as directory, browser() as chromium:
        with Running(directory / "open", gateway=True) as server:
            server.cli("topic", "create", "orders", "--partitions", "3", "--bootstrap", server.bootstrap)
            with urlopen(f"{server.gateway_url}/openapi.json", timeout=60) as answer:
                document = json.load(answer)
            for width, colours in WINDOWS:
                seen = Seen(chromium, f"{server.gateway_url}/docs", width, colours)
                check_page(seen, document, server.gateway_url)
                check_use(seen, document)
            verdict.floor("calls that are shown", len(calls_of(document)), 1)
            verdict.floor("examples that were run", tried(seen, document), 1)
            linked = Seen(chromium, f"{server.gateway_url}/docs#createTopic", 1280, "light")
            assert linked.page.eval_on_selector("#createTopic", "node => node.open"), "a link from elsewhere opens it"
        with Running(directory / "secured", gateway=True, settings=SECURED) as server:
            check_page(Seen(chromium, f"{server.gateway_url}/docs", 1280, "light"), document, server.gateway_url)
            verdict.fact("with passwords", "the page shows itself to everybody, and asks for none")
    verdict.leave()


if __name__ == "__main__":
    main()
