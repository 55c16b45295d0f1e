"""On Ray: the only room that imports it.

ray_runtime    what the agent room sees: hosts and the bus of a cluster
cluster        connecting: starting a local Ray or attaching, versions, quiet logs
spawn          every `ray.remote`, with its options, in one place
client         a driver's side of a host: short calls out, one stream of events back
agent_actor    hosts runs (agents and teams alike)
dispatch       an actor's side of its node's dispatcher: the ToolExecutor port
dispatcher     owns the tool tasks of a node; runs no user code
tool_task      one call, in a worker
services       bus, records and the list of hosts, once per cluster
failures       Ray's exceptions as ours
pickling       the one place that pickles, for use within a cluster only
"""

import os

# Read by Ray when it is first imported or connects; what a user has set stays.
os.environ.setdefault(
    "RAY_DEDUP_LOGS_SKIP_REGEX", r"PYTHON worker processes have been started on node"
)
"""Many small actors are this package's way; the advice to use fewer is no news to its users."""
os.environ.setdefault("RAY_timeout_ms_task_wait_for_death_info", "100")
"""How soon a call to an actor that just died fails: 1 s by default."""
