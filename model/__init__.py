"""Words and bytes that every package shares: the bottom of the import graph, no I/O."""
