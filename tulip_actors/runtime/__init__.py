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

from tulip_actors.runtime.environment import prepare

prepare()
