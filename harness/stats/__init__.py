"""Statistics of a duel: arrays in, figures out. No files, no clocks, no randomness.

`paired` makes one number of each launch pair, `sequential` decides at the planned looks, `noise` says how many steps a
launch should run, `history` borrows variance from stored same-code duels and flags suspicious points, `multiple`
corrects for many tests. docs/statistics.md has the rule, its reasons and how it was checked.
"""
