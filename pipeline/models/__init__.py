"""Read models from `sql/`, build them into the warehouse, and check them against their headers."""
