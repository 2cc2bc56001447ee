"""Tables read by engines of others. The modules share one Spark (`conftest.py`)."""
