"""Validators: they decide which actions an engine may apply."""

from llmsim_lab.validators.validators import EconLLMValidator, LLMValidator, Validator

__all__ = ["EconLLMValidator", "LLMValidator", "Validator"]
