"""Prompts as files: one Markdown file each, with slots for what changes."""

from llmsim_lab.prompts._prompt import Prompt

__all__ = ["Prompt"]
