"""The service that answers queries: from a statement to a snapshot, from a snapshot to an engine's answer."""

from headwater.query.queries.service import Queries as Queries
