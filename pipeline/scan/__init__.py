"""Byte kernels shared by formats: compiled, without the GIL, cached on disk."""
