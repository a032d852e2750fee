"""Checking an exported audit log without the service: Python's standard library and `cryptography`, nothing else.

The folder works alone, wherever it is copied to: `python offline FOLDER --key VKEY`. Its imports are relative, so that
`strongroom audit verify FOLDER` is the same code. The algorithm is in docs/audit-format.md.
"""
