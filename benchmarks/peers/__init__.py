"""The work of `benchmarks.loop` on other libraries, one module per library.

Each has `async def run(turns)`: a conversation of that many model calls, in which every call but
the last asks for one call of a trivial async tool, its arguments new each time. The model is a
script behind the library's own model interface; tracing is off, nothing uses the network. What can
be made once (agents, graphs) is made once, so a second run costs its turns alone.

A module is imported only in a process of its own, by `python -m benchmarks.peers NAME`.
"""
