"""Traces in the Nsight Systems SQLite schema: written, merged, read, nested, and joined to the GPU work they launched.

`schema`, `writer` and `merge` need only the standard library (they run inside the measured processes); `model`,
`reader`, `nesting`, `naming` and `projection` work on numpy arrays.
"""
