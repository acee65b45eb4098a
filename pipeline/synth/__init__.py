"""Writes archives with known answers in every format, from a schedule simulator of its own."""
