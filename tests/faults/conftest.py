"""What of the tests of faults only `make test-cluster` runs, because it takes minutes."""

import os

from tests.support.running import VARIABLE

collect_ignore = [] if VARIABLE in os.environ else ["test_rolling_restart.py"]
