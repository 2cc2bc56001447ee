"""What assignments depend on, in a few bytes: a group compares them to see whether it needs new targets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from headwater.coordination.common import Topics
from headwater.coordination.consumer.members import Wish


def digest_of(subscriptions: Mapping[Wish, frozenset[str]], topics: Topics) -> bytes:
    """A digest of the topics, of what each expression matches, and of which members may describe fewer topics than
    others. A topic that no member may describe does not change the digest. `subscriptions` has the topics of each wish.
    """
    digest = hashlib.blake2b(digest_size=16)
    wanted = frozenset().union(*subscriptions.values())
    found = [(name, topic) for name in wanted if (topic := topics.get(name)) is not None]
    for name, (topic_id, count) in sorted(found):
        digest.update(f"{len(name)}:{name}:{topic_id.hex}:{count};".encode())
    most: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}
    for wish, names in subscriptions.items():
        kind = (wish.topic_names, wish.topic_regex)
        most[kind] = most.get(kind, frozenset()) | names
    for kind, names in sorted(most.items()):
        if kind[1]:
            digest.update(repr((kind, sorted(names))).encode())
    for wish, names in sorted(subscriptions.items()):
        if names != most[wish.topic_names, wish.topic_regex]:
            digest.update(repr((wish, sorted(names))).encode())
    return digest.digest() if found else b""
