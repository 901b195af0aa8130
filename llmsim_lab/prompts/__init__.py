"""Prompts as files: one Markdown file each, with slots for what changes."""

from llmsim_lab.prompts.prompt import Prompt, RenderedPrompt
from llmsim_lab.spans import Span

__all__ = ["Prompt", "RenderedPrompt", "Span"]
