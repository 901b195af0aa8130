"""What people did in published studies, and populations of players like real ones."""

from llmsim_lab.people.figures import PublishedFigure, load_people, published
from llmsim_lab.people.population import Population

__all__ = ["Population", "PublishedFigure", "load_people", "published"]
