"""What a broker loads when it starts."""

import subprocess
import sys

from tests.support.promise import promise


@promise("L9")
def test_a_broker_starts_without_the_heavy_parts() -> None:
    """numba and pyarrow load when they are first used."""
    code = (
        "import sys, headwater.log.segment.write, headwater.log.segment.encode, headwater.log.segment.read;"
        "sys.exit(any(name in sys.modules for name in ('numba', 'numpy', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@promise("L9")
def test_clients_do_without_a_library_of_tests() -> None:
    """kio loads Hypothesis wherever that is installed, unless `headwater.wire` comes first."""
    code = "import sys, headwater.client.client; sys.exit('hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
