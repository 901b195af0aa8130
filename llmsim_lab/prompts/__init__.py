"""Prompts as files: one Markdown file each, with slots for what changes."""

from llmsim_lab._spans import Span
from llmsim_lab.prompts.prompt import Prompt, RenderedPrompt

__all__ = ["Prompt", "RenderedPrompt", "Span"]
