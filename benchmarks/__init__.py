"""One benchmark per module; `scripts/bench NAME` runs `benchmarks.NAME` as a program."""
