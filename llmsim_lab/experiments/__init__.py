"""Prompt experiments: variants of a prompt on the same recorded states, and what differs."""

from llmsim_lab.experiments.ablation import (
    Ablation,
    AblationConfig,
    PromptText,
    word_distance,
)
from llmsim_lab.experiments.experiment import PromptExperiment
from llmsim_lab.experiments.plan import Plan, Progress
from llmsim_lab.experiments.setup import Variant
from llmsim_lab.experiments.silencing import module_ablation
from llmsim_lab.experiments.statistics import Difference, Noise, Outcome

__all__ = [
    "Ablation",
    "AblationConfig",
    "Difference",
    "Noise",
    "Outcome",
    "Plan",
    "Progress",
    "PromptExperiment",
    "PromptText",
    "Variant",
    "module_ablation",
    "word_distance",
]
