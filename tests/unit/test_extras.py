"""Extras: which library belongs to which, and what is said where one is missing."""

from __future__ import annotations

import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from headwater import extras
from headwater.errors import MissingExtra
from headwater.extras import INCLUDES, LIBRARIES, USES, has, missing, need, sentence

PROMISES = ("O9",)

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = {"run", "test", "full"}
"""Extras for this repository, not for users."""
OTHER_NAMES = {
    "re2": "google-re2",
    "grpc": "grpcio",
    "grpc_tools": "grpcio-tools",
    "google.protobuf": "protobuf",
    "google.type": "googleapis-common-protos",
}


def names_of(requirements: list[str]) -> set[str]:
    """The packages of requirements, without versions and extras of their own."""
    found = {line.split("==")[0].split(">=")[0].split("[")[0] for line in requirements}
    return {name.replace("_", "-") for name in found if name != "headwater"}


def test_every_extra_of_the_project_is_known() -> None:
    assert set(PROJECT["optional-dependencies"]) - GROUPS == set(LIBRARIES) == set(USES)


@pytest.mark.parametrize("extra", LIBRARIES)
def test_libraries_are_those_of_the_project(extra: str) -> None:
    requirements = PROJECT["optional-dependencies"][extra]
    libraries = {OTHER_NAMES.get(name, name).replace("_", "-") for name in LIBRARIES[extra]}
    assert names_of(requirements) == libraries
    included = [line for line in requirements if line.startswith("headwater[")]
    assert included == ([f"headwater[{','.join(INCLUDES[extra])}]"] if extra in INCLUDES else [])


def test_the_base_has_two_dependencies() -> None:
    assert names_of(PROJECT["dependencies"]) == {"msgspec", "typing-extensions"}


def test_what_is_installed_is_found() -> None:
    known = packages_distributions()
    assert "msgspec" in known
    for extra in LIBRARIES:
        if extra != "java":
            assert has(extra)
            need(extra)


def test_what_is_missing_is_one_sentence_with_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.LIBRARIES, "sql", ("a_library_that_nobody_has", "duckdb"))  # type: ignore[arg-type]
    has.cache_clear()
    try:
        assert not has("sql")
        with pytest.raises(MissingExtra, match=r"SQL in a gateway needs .* pip install 'headwater\[sql\]'"):
            need("sql")
    finally:
        has.cache_clear()


def test_an_import_that_fails_names_its_extra() -> None:
    for name, extra in (("kio", "kafka"), ("google.protobuf", "registry"), ("google", "registry"), ("grpc", "etcd")):
        told = missing(ModuleNotFoundError(f"No module named {name!r}", name=name))
        assert str(told) == sentence(extra)
    assert missing(ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere")) is None
    assert missing(ImportError("no name")) is None
