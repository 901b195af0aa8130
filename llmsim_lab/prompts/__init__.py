"""Prompts as files: one Markdown file each, with slots for what changes."""

from llmsim_lab.prompts.prompt import Prompt, PromptDiff
from llmsim_lab.prompts.rendered import RenderedPrompt
from llmsim_lab.spans import Cut, Provenance, Span

__all__ = [
    "Cut",
    "Prompt",
    "PromptDiff",
    "Provenance",
    "RenderedPrompt",
    "Span",
]
