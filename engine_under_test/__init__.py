"""A small FSDP2 training engine with the mode switch of the engines it stands for, kept here to be measured.

It knows of no profiler and never imports the harness: the harness reaches it by a factory path, like any other engine.
"""
