"""`python -m tulip_actors.cli`, the same as `tulip-actors`."""

from tulip_actors.cli import main

main()
