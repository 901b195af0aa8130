"""What people did in published studies, and populations of players like real ones."""

from llmsim_lab.people.figures import PublishedFigure, load_people, published

__all__ = ["PublishedFigure", "load_people", "published"]
