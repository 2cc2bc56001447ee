"""Every story there is: importing this module fills the registry."""

from tests.differential import (
    stories_classic,
    stories_consumer,
    stories_offsets,
    stories_records,
    stories_static,
    stories_topics,
    stories_transactions,
    stories_walks,
)
from tests.differential.story import STORIES

__all__ = [
    "STORIES",
    "stories_classic",
    "stories_consumer",
    "stories_offsets",
    "stories_records",
    "stories_static",
    "stories_topics",
    "stories_transactions",
    "stories_walks",
]
