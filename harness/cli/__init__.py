"""The command line: one file a command, listed in `harness.cli.__main__`."""
