"""On Ray: the only room that imports it.

ray_runtime    what the agent room sees: hosts and the bus of a cluster
cluster        connecting: starting a local Ray or attaching, versions, quiet logs
spawn          every `ray.remote`, with its options, in one place
client         a driver's side of a host: short calls out, one stream of events back
agent_actor    hosts runs (agents and teams alike)
dispatch       an actor's side of the dispatchers: the ToolExecutor port (one each: `dispatch_link`)
dispatcher     owns the tool calls of a node: the conversations with agents and workers
lanes          its workers: which gets which call, when one begins, ends or dies (data: `lane`)
tool_work      what agents, dispatcher and workers say to each other, and how it is packed
tool_worker    a process that runs bodies; `worker_children` makes the calls of a body
start_marks    which bodies have begun, readable after a kill
memory_watch   the bound on what one call may use
cluster_size   nodes and resources, as far as they decide how many workers make sense
process_memory how the processes that are ours alone use memory
services       bus, records and the list of hosts, once per cluster (`service_clients`: the ports)
store_actor    a store in files, served to other nodes
bundles        short calls to one actor, bundled
failures       Ray's exceptions as ours
pickling       the one place that pickles, for use within a cluster only
"""

from tulip_actors.runtime.environment import prepare

prepare()
