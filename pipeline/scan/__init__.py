"""Compile byte kernels that formats share: without the GIL, cached on disk."""
