"""Which model is fit for what: a card of shares, speeds and habits, and one of its economics."""

from llmsim_lab.study._fitness import fitness_card
from llmsim_lab.study._gate import economics_card
from llmsim_lab.study._response import impulse_response

__all__ = ["economics_card", "fitness_card", "impulse_response"]
