"""The command line. `main` is the entry point; everything else is imported when it is called."""


def main() -> None:
    """`tulip-actors ...`. Ends the process with the command's exit code."""
    from tulip_actors.cli.app import run_app

    run_app()
