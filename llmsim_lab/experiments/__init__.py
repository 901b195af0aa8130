"""Prompt experiments: variants of a prompt on the same recorded states, and how they differ."""

from llmsim_lab.experiments._ablation import (
    Ablation,
    AblationConfig,
    PromptText,
    module_ablation,
)
from llmsim_lab.experiments._experiment import PromptExperiment
from llmsim_lab.experiments._statistics import paired_interval

__all__ = [
    "Ablation",
    "AblationConfig",
    "PromptExperiment",
    "PromptText",
    "module_ablation",
    "paired_interval",
]
