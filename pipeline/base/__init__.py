"""Hold what knows nothing of traces: errors, files, signals, metrics, console, disk cache."""
