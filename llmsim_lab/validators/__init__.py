"""Validators: which actions an engine may apply."""

from llmsim_lab.validators._validators import AlwaysValid, EconLLMValidator, LLMValidator, Validator

__all__ = ["AlwaysValid", "EconLLMValidator", "LLMValidator", "Validator"]
