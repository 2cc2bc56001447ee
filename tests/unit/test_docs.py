"""The docs say what the code does: derived parts are current, and every command and page is written up."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from demo.readers import CATALOG, catalog_settings
from harness.storage import Place
from headwater.settings.settings import load

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "headwater"


def _docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_script", ROOT / "scripts" / "docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_script"] = module
    spec.loader.exec_module(module)
    return module


DOCS = _docs()


@pytest.mark.parametrize("page", DOCS.PAGES)
def test_derived_parts_are_current(page: str) -> None:
    text = (ROOT / page).read_text()
    assert DOCS.render(page, text) == text, "run `make docs`"


def test_every_setting_has_a_meaning() -> None:
    settings = [row for section in DOCS.sections() for row in section.settings]
    assert len({row.name for row in settings}) == len(settings) > 100
    missing = [row.name for row in settings if not row.meaning.endswith(".")]
    assert not missing, "the string below the field in `headwater.settings` is a setting's meaning"


def test_every_section_of_the_settings_is_explained() -> None:
    assert not [section.name for section in DOCS.sections() if not section.about]


def test_every_metric_is_a_row_and_pages_name_no_others() -> None:
    rows = DOCS.measured()
    names = {row.name for row in rows}
    assert len(names) == len(rows) > 130
    assert not [row.name for row in rows if not re.fullmatch(r"headwater_[a-z_]+", row.name) or row.meaning[-1:] != "."]
    for page in PAGES:
        # A name that ends with an underscore stands for all that begin so.
        named = re.findall(r"`(headwater_[a-z_]+[a-z])\b", (ROOT / page).read_text())
        assert not [name for name in named if name not in names], page


def test_every_command_is_written_up() -> None:
    from headwater.cli import acl, backup, cluster, consume, ingest, link, main, produce, table, topic, txn, user
    from headwater.cli.sql import command as sql

    for module in (topic, produce, consume, txn, table, backup, user, acl, cluster, sql, link, ingest):
        module.register(main.app)
    names = {c.name or c.callback.__name__ for c in main.app.registered_commands if c.callback and not c.hidden}
    names |= {group.name for group in main.app.registered_groups if group.name}
    text = "".join(p.read_text() for p in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    missing = {name for name in names if f"headwater {name}" not in text}
    assert not missing


def test_every_make_target_is_listed() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    assert targets == set(re.findall(r"^([a-z-]+):.*##", makefile, re.M)), "a target without a line for `make help`"


PAGES = sorted(str(page.relative_to(ROOT)) for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PATH = re.compile(r"`([\w./-]+\.py)`")


def _anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)", (ROOT / page).read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


ROOMS = "docs/internals/rooms.md"
"""It is made of docstrings, which name modules relative to their own packages."""
INSIDE = ["ARCHITECTURE.md", "CONTRIBUTING.md", *(p for p in PAGES if p.startswith("docs/internals/") and p != ROOMS)]
MAX_ARCHITECTURE_BYTES = 14 << 10


def test_every_path_that_a_page_names_exists() -> None:
    missing = []
    for page in INSIDE:
        for path in sorted(set(PATH.findall((ROOT / page).read_text()))):
            if not any((root / path).is_file() for root in (ROOT, PACKAGE)):
                missing.append(f"{page}: {path}")
    assert not missing


def test_the_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= MAX_ARCHITECTURE_BYTES


def test_every_room_and_module_is_on_the_page_of_rooms() -> None:
    text = (ROOT / ROOMS).read_text()
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert len(rooms) > 20
    assert rooms - set(re.findall(r"^## (\w+)$", text, re.M)) == set()
    modules = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if path.name[:2] != "__"]
    assert len(modules) > 500
    assert not [module for module in modules if f"`{module}`" not in text]


DECISIONS = sorted((ROOT / DOCS.DECISIONS).glob("[0-9]*.md"))
PARTS = ["Question.", "Decision.", "Why.", "Measured.", "What would change it."]
MAX_DECISION_LINES = 25


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [file.name[:4] for file in DECISIONS]
    assert len(numbers) > 50 and len(set(numbers)) == len(numbers)


def test_every_decision_is_short_whole_and_linked() -> None:
    index = (ROOT / DOCS.DECISIONS / "README.md").read_text()
    wrong = []
    for file in DECISIONS:
        text = file.read_text()
        if not re.fullmatch(r"\d{4}-[a-z0-9-]+", file.stem) or not text.startswith(f"# {int(file.name[:4])}. "):
            wrong.append(f"{file.name}: its name, or its title")
        if re.findall(r"^\*\*([^*]+)\*\* \S", text, re.M) != PARTS:
            wrong.append(f"{file.name}: the five parts")
        if len(text.splitlines()) > MAX_DECISION_LINES:
            wrong.append(f"{file.name}: more than {MAX_DECISION_LINES} lines")
        if f"]({file.name})" not in index:
            wrong.append(f"{file.name}: not in the index")
    assert not wrong


def test_the_first_questions_of_an_engineer_are_answered_by_a_path() -> None:
    rows = re.findall(r"^\| (.*\?) \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert len(rows) >= 10
    explained = (ROOT / ROOMS).read_text()
    for question, answer in rows:
        paths = PATH.findall(answer)
        assert paths, question
        assert all(f"| `{path}` |" in explained for path in paths), question


def _links(page: str) -> set[str]:
    """The pages of the repository that a page links to."""
    found = set()
    for link in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text()):
        file = (ROOT / page).parent / link
        if "://" not in link and file.is_file():
            found.add(file.resolve().relative_to(ROOT).as_posix())
    return found


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, new = set[str](), {"README.md"}
    while new:
        reached |= new
        new = {link for page in new if page.endswith(".md") for link in _links(page)} - reached
    assert not [page for page in PAGES if page not in reached]


def test_the_index_links_every_page_but_those_of_lists() -> None:
    """Decisions and benchmarks have an index of their own."""
    lists = ("docs/internals/decisions/", "docs/benchmarks/")
    linked = _links("docs/README.md")
    pages = [page for page in PAGES if page.startswith("docs/") and not page.startswith(lists)]
    assert not [page for page in pages if page not in {*linked, "docs/README.md"}]


def test_every_link_between_pages_leads_to_a_file() -> None:
    missing = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
        missing += [f"{page}: {link}" for link in links if not ((ROOT / page).parent / link).is_file()]
        named = re.findall(r"`((?:[\w-]+/)*[\w-]+\.md)`", text)
        missing += [f"{page}: {name}" for name in named if not (ROOT / name).is_file()]
    assert not missing


def test_every_link_to_a_heading_leads_to_one() -> None:
    missing = []
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", (ROOT / page).read_text()):
            if "://" in link:
                continue
            target = ((ROOT / page).parent / link).resolve() if link else ROOT / page
            if anchor not in _anchors(target.relative_to(ROOT).as_posix()):
                missing.append(f"{page}: {link}#{anchor}")
    assert not missing


def test_sources_name_pages_that_exist() -> None:
    """A message or a docstring that sends its reader to a page."""
    missing = []
    for folder in ("src", "scripts", "tests", "benchmarks", "harness", "demo"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for name in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", file.read_text()):
                if not (ROOT / name).is_file():
                    missing.append(f"{file.relative_to(ROOT)}: {name}")
    assert not missing


@pytest.mark.parametrize("page", ["security.md"])
def test_settings_in_the_docs_can_be_read(page: str, tmp_path: Path) -> None:
    """Every example that begins with the name of a settings file is one."""
    text = (ROOT / "docs" / "guides" / page).read_text()
    examples = re.findall(r"(?:^    # settings\.toml\n)((?:^    .*\n|^\n(?=    ))+)", text, re.MULTILINE)
    assert len(examples) >= 2
    for number, example in enumerate(examples):
        file = tmp_path / f"{number}.toml"
        file.write_text(re.sub(r"^    ", "", example, flags=re.MULTILINE))
        assert load(str(file), environment={}).security.listeners


MAX_README_WORDS = 500


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MAX_README_WORDS


def test_the_readme_has_the_worst_line_of_the_benchmark() -> None:
    """The lowest ratio of a rate to Kafka's."""
    rows = re.findall(r"^\|.*, MB/s \|(.*)\|$", (ROOT / "docs/benchmarks/kafka.md").read_text(), re.M)
    ratios = [cells[2] for row in rows if (cells := [cell.strip() for cell in row.split("|")])[2] != "–"]
    assert len(ratios) > 10
    assert f"reaches {min(ratios, key=float)} of Kafka's rate" in " ".join((ROOT / "README.md").read_text().split())


def test_spark_is_configured_on_the_page_as_tests_configure_it() -> None:
    text = (ROOT / "docs/guides/tables.md").read_text()
    found = dict(re.findall(r"^      --conf ([\w.]+)=(\S+)", text, re.M))
    place = Place("orders", "", "http://127.0.0.1:8081/iceberg", "")
    extensions = (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "io.delta.sql.DeltaSparkSessionExtension",
    )
    assert found.pop("spark.sql.extensions") == ",".join(extensions)
    assert found.pop("spark.sql.catalog.spark_catalog") == "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    assert found == catalog_settings(place) and f"{CATALOG}.topics.orders" in text
    [packages] = re.findall(r"^      --packages (\S+)", text, re.M)
    assert all(package in (ROOT / "scripts/setup-tools").read_text() for package in packages.split(","))


def test_the_ten_settings_are_settings() -> None:
    text = (ROOT / "docs/reference/configuration.md").read_text()
    section = text.partition("## The ten settings that people change")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([\w.]+)` \|", section, re.M)
    known = {row.name for part in DOCS.sections() for row in part.settings}
    assert len(named) == 10 and not [name for name in named if name not in known]


WORST = {
    r"\b(nobody|everybody|somebody|anybody|everyone|someone|anyone|whoever|whomever)\b": "no process, every client",
    r"\b(stands?|stood)\b(?! for\b)|\b(lies|lay|lie)\b (in|on|at|below|behind|there)\b": "is, is stored",
    r"\b(is|are|was|were|be|been|being|gets?|got) told\b": "receives",
    r"\bled there\b": "redirected",
    r"\bconfirms? that\b": "pass --yes",
    r"\bformer(ly)?\b": "previous",
    r"\b(client|caller|reader)s? (is|are|was|were|has|have) gone\b": "the client left",
}
"""Words that a reader has to guess at, and what to write instead."""


def test_the_worst_words_are_not_used() -> None:
    """In prose: code in backticks and blocks is left out."""
    wrong = []
    for page in PAGES:
        text = re.sub(r"`[^`\n]*`", "``", (ROOT / page).read_text())
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("    "):
                continue
            for pattern, instead in WORST.items():
                if found := re.search(pattern, line, re.IGNORECASE):
                    wrong.append(f"{page}:{number}: {found[0]} ({instead})")
    assert not wrong
