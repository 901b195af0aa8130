"""Validators: which actions an engine may apply."""

from llmsim_lab.validators.base import AlwaysValid, Validator, ValidatorStats
from llmsim_lab.validators.llm_validator import EconLLMValidator, LLMValidator

__all__ = ["AlwaysValid", "EconLLMValidator", "LLMValidator", "Validator", "ValidatorStats"]
