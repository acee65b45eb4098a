"""Hold what the compiled parsers of two formats or more share."""
