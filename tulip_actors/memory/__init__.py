"""Where records live. `run_store` is the in-memory store that one process or one cluster shares."""
