"""What an experimenter does to a run from outside: set a variable, or add a shock."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from llmsim_lab.economy.macro import StaticEconomy, set_levels
from llmsim_lab.economy.shocks import Shocks
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import GlobalState, SimulationState
from llmsim_lab.runs._config import RunIntervention

__all__ = ["Intervention", "ShockName", "Variable"]

Variable = Literal[
    "interest_rate",
    "inflation",
    "output_gap",
    "unemployment",
    "gdp_growth",
    "total_economic_value",
]
ShockName = Literal["supply", "demand"]
Finite = Annotated[float, Field(allow_inf_nan=False)]

_LEVELS = {"interest_rate", "inflation", "output_gap", "unemployment"}


class Intervention(RunIntervention):
    """Something done at one turn; it shows in that turn's state, before anyone acts on it.

    Attributes:
        turn: the number of the state that is changed.
        set_to: variables and their new values, in their own units. Inflation's last four quarters
            move together, so that the four-quarter figure is the one given; the interest rate and
            the output gap change in this quarter only.
        shock: percentage points added to the quarter's inflation (``supply``) or output gap
            (``demand``) while the macro model leads to that state.
        note: why, for the record.
    """

    model_config = ConfigDict(populate_by_name=True)

    set_to: dict[Variable, Finite] = Field(default_factory=dict, alias="set")
    shock: dict[ShockName, Finite] = Field(default_factory=dict)
    note: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.set_to and not self.shock:
            raise ValueError(
                "an intervention needs 'set' or 'shock', for example shock: {supply: 2}"
            )
        if self.shock and self.turn == 0:
            raise ValueError(
                "a shock at turn 0 would hit before the run begins; use turn 1, or 'set'"
            )
        # The values must make a state: fail here, not in the middle of a run.
        self.apply(GlobalState())
        return self

    @property
    def shocks(self) -> Shocks:
        """The shock as the macro model takes it."""
        return Shocks(supply=self.shock.get("supply", 0.0), demand=self.shock.get("demand", 0.0))

    def apply(self, economy: GlobalState) -> GlobalState:
        """Return the economy with the variables set, and its recent past in agreement."""
        levels = {name: value for name, value in self.set_to.items() if name in _LEVELS}
        others = {name: value for name, value in self.set_to.items() if name not in _LEVELS}
        if levels:
            economy = set_levels(economy, **levels)
        if others:
            economy = GlobalState(**dict(economy) | others)
        return economy

    def applied(self, state: SimulationState, run: Any) -> SimulationState:
        """Return the state with the variables set; a shock hits in the macro model, before."""
        del run
        return state.model_copy(update={"global_state": self.apply(state.global_state)})

    def check(self, run: Any) -> None:
        """Refuse a shock for which it is too late in a run, or for which it has no economy.

        Raises:
            ConfigError: it says what would be possible instead.
        """
        if not self.shock:
            return
        if self.turn == run.turn_number:
            raise ConfigError(
                f"a shock hits on the way to a turn, and turn {self.turn} is reached; use "
                f"turn={self.turn + 1}, or set=..."
            )
        macro = run.engine.macro if isinstance(run.engine, EconomicEngine) else None
        if macro is None or isinstance(macro, StaticEconomy):
            raise ConfigError(
                f"{type(run.engine).__name__} has no economy for a shock to hit; use an "
                "EconomicEngine with RudebuschSvensson behind it, or set=..."
            )

    def __str__(self) -> str:
        parts = [f"{name}={value:g}" for name, value in self.set_to.items()]
        parts += [f"{name} shock {value:+g}" for name, value in self.shock.items()]
        note = f" ({self.note})" if self.note else ""
        return f"turn {self.turn}: {', '.join(parts)}{note}"
