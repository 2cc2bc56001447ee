"""Every story there is: importing this module fills the registry."""

from tests.differential import (
    stories_access,
    stories_classic,
    stories_consumer,
    stories_offsets,
    stories_order,
    stories_records,
    stories_static,
    stories_topics,
    stories_transactional_data,
    stories_transactional_offsets,
    stories_transactional_walks,
    stories_transactions,
    stories_transactions_told,
    stories_walks,
)
from tests.differential.story import STORIES

__all__ = [
    "STORIES",
    "stories_access",
    "stories_classic",
    "stories_consumer",
    "stories_offsets",
    "stories_order",
    "stories_records",
    "stories_static",
    "stories_topics",
    "stories_transactional_data",
    "stories_transactional_offsets",
    "stories_transactional_walks",
    "stories_transactions",
    "stories_transactions_told",
    "stories_walks",
]
