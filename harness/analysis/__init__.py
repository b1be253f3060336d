"""What a trace says: steps, where their time goes, what differs between two traces, and what is wasteful.

Pure: structs of arrays in, structs of arrays out; no files and no clocks.
"""
