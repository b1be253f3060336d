"""Stepduel's harness. Importing it costs nothing: each command imports what it needs.

The worker loads this package inside the engine's own environment, so nothing here may import beyond the standard
library.
"""

__version__ = "0.1.0"
