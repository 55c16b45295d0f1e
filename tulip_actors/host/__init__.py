"""What hosts runs, in any process and without Ray.

The data's way through this room: `run_host` starts a `hosted_run`, which `opening` gives its thread
and what is recorded of it; its Runnable sees it as the `hosted_context`. What the run emits goes
through its `sink` to a `feed` (whoever follows the run) and to the `publisher` (the bus); what it
records goes through a `record_writer` to the store, together with the events. After a crash
`probation` says whether it is taken up, and `replay` what was told already. Its tool calls go
through an executor, whose `call_book` keeps their lives: `inline_executor` here, a dispatcher on
Ray. `inline` makes a whole runtime of these in the calling process; `tulip_actors.runtime` puts the
same pieces into actors.
"""
