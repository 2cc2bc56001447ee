"""URLs of ledgers in Oxia say what they mean."""

from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.ledger import open_ledger
from headwater.ledger.oxia.ledger import OxiaLedger
from headwater.ledger.oxia.url import Servers, parse_url
from tests.support.promise import promise

PROMISES = ("M1",)


@promise("M1")
def test_all_parts(tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.touch()
    assert parse_url("oxia://a:1") == Servers(("a:1",), "default", "headwater")
    assert parse_url("oxia://a:1,b:2/space?prefix=x/y") == Servers(("a:1", "b:2"), "space", "x/y")
    assert parse_url(f"oxia://a:1/s?tls=true&ca={file}&cert={file}&key={file}") == Servers(
        ("a:1",), "s", tls=True, ca=str(file), certificate=str(file), key=str(file)
    )
    assert isinstance(open_ledger("oxia://a:1/space"), OxiaLedger)


@promise("M1")
@pytest.mark.parametrize(
    "url",
    [
        "oxia:",
        "oxia:///space",
        "oxia://a/space",
        "oxia://a:1,/space",
        "oxia://a:port/space",
        "oxia://user@a:1/space",
        "oxia://a:1/b/c",
        "oxia://a:1/b?prefx=c",
        "oxia://a:1?prefix=",
        "oxia://a:1?prefix=__oxia/x",
        "oxia://a:1?prefix=/x",
        "oxia://a:1?tls=perhaps",
        "oxia://a:1?ca=/etc/passwd",
        "oxia://a:1?tls=true&cert=/etc/passwd",
        "oxia://a:1?tls=true&ca=/nowhere/ca.pem",
    ],
)
def test_mistakes_say_so(url: str) -> None:
    with pytest.raises(ConfigError, match="oxia:"):
        open_ledger(url)
