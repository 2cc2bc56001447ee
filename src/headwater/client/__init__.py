"""A small asyncio Kafka client: connections, metadata, admin calls, an idempotent producer and a reader."""

import headwater.wire  # noqa: F401  # before any module here imports kio by itself: it says how
