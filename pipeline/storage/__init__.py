"""Access object stores by URI: list, read, put and remove.

`objects` is the one seam to the library of stores. It needs the extra `stores`, and so does `duck`,
by which DuckDB reads part files with its own reader.
"""
