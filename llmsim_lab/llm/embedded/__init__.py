"""Small real models, run on this machine by a child process of ours."""

from llmsim_lab.llm.embedded.fetch import get_model, rich_progress

__all__ = ["get_model", "rich_progress"]
