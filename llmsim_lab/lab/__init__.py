"""Looking at runs: charts for notebooks, reports and papers."""

from llmsim_lab.lab.figures import rate_figure

__all__ = ["rate_figure"]
