"""Collectors: what turns a launch into a trace. One file each; `harness.collectors.registry` knows them by name.

This package module imports nothing, so that a rank can import `harness.collectors.recorder` with nvtx alone installed.
"""
