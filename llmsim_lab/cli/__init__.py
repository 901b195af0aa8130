"""The command ``llmsim-lab``."""

from llmsim_lab.cli._app import main

__all__ = ["main"]
