"""The loop and its nodes: `loop.py` is the table, each node a file beside it."""
