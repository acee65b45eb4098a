"""Query a lake's warehouse: a confined connection, queries, and printed results."""
