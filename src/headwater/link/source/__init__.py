"""The source of a link: which topics it has, what its partitions hold, and whether they still hold what was copied."""
