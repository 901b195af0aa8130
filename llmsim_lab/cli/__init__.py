"""The command ``llmsim-lab``."""

from llmsim_lab.cli.app import main

__all__ = ["main"]
