"""Prompts as files: one Markdown file each, with slots for what changes."""

from llmsim_lab.prompts.prompt import Prompt, PromptDiff
from llmsim_lab.prompts.rendered import RenderedPrompt, trace_prompt
from llmsim_lab.prompts.spans import Cut, Provenance, Span

__all__ = [
    "Cut",
    "Prompt",
    "PromptDiff",
    "Provenance",
    "RenderedPrompt",
    "Span",
    "trace_prompt",
]
