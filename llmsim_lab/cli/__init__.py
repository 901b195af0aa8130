"""The command ``llmsim-lab``."""

import sys

# Here too, since it takes a second: a Ctrl-C then is the user's, and would leave a traceback.
try:
    from llmsim_lab.cli._app import main
except KeyboardInterrupt:
    sys.exit(130)

__all__ = ["main"]
