"""Prompt experiments: variants of a prompt on the same recorded states, and how they differ."""

from llmsim_lab.experiments._ablation import (
    Ablation,
    module_ablation,
)
from llmsim_lab.experiments._experiment import PromptExperiment
from llmsim_lab.experiments._statistics import paired_interval

__all__ = [
    "Ablation",
    "PromptExperiment",
    "module_ablation",
    "paired_interval",
]
