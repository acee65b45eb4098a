"""Verify a lake: files against manifests, rows against line counts, figures against each other."""
