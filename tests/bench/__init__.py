"""Benchmarks: `python -m tests.bench` measures, with `compare BASE CHANGE` it compares.

Kept empty of imports: candidates are modules of this package and are measured with their imports.
"""
