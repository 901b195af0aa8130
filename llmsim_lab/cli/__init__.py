"""The command ``llmsim-lab``."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, from the first moment on."""
    try:
        # Here, since it takes a second.
        from llmsim_lab.cli import _app

        _app.main()
    except KeyboardInterrupt:
        # Typer takes it while a command runs; this one came before.
        sys.exit(130)
