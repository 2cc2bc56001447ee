"""How `make test` divides tests among its workers: a module stays together, and long ones begin."""

from __future__ import annotations

from pathlib import Path

from tests.processes.inner import run_pytest

SHORT = "import pytest\n\n\n@pytest.mark.parametrize('n', range(5))\ndef test_it(n):\n    pass\n"
LONG = f"import pytest\n\npytestmark = pytest.mark.long\n{SHORT.removeprefix('import pytest')}"


def lines_of(directory: Path, *options: str) -> list[str]:
    """The lines of another run of pytest that tell of a test."""
    ended = run_pytest(directory, {"test_a.py": SHORT, "test_b.py": SHORT, "test_c.py": LONG}, "-v", *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [line for line in ended.stdout.splitlines() if "PASSED" in line]


def test_long_modules_begin(tmp_path: Path) -> None:
    lines = lines_of(tmp_path)
    assert len(lines) == 15
    assert all("test_c.py" in line for line in lines[:5])


def test_a_module_stays_in_one_worker(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, "--numprocesses", "2", "--dist", "loadgroup", "--no-loadscope-reorder")
    assert len(lines) == 15
    for module in ("test_a.py", "test_b.py", "test_c.py"):
        workers = {line.split()[0] for line in lines if module in line}
        assert len(workers) == 1, lines
