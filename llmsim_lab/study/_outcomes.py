"""Outcomes of a study: which ones are compared, and their values, read from the runs' files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean
from typing import Any

from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import among, brief, error_text, plain_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run.charts import series_of
from llmsim_lab.run.records import config_of
from llmsim_lab.study._files import Contents, RunContents, StudyFiles
from llmsim_lab.study.design import LAST, labelled
from llmsim_lab.study.playing import Job, StudyRun

# Any, since a user's function may name the class of the run.
Outcome = str | Callable[[Any], float | str]
Outcomes = Outcome | Mapping[str, Outcome] | Sequence[Outcome]
"""A column of the frame, a measure that the world names, or a function of the run."""


_MOST_OUTCOMES = 200
"""Of a study: a report has a table and a chart of each."""


def outcomes_of(
    outcome: Outcomes | None,
    trial: Run,
    *,
    asks_again: bool,
) -> dict[str, Outcome]:
    """Return what a study compares, by label.

    Args:
        outcome: as a user names it; None for what the world names first, or for all fields of
            recorded replies.
        trial: a run of the study.
        asks_again: whether the study asks recorded situations again.

    Raises:
        ConfigError: a name is neither a column nor a measure.
    """
    # Dicts as ordered sets, so that errors name the fields in the order of the replies.
    fields: dict[str, None] = {}
    fields_of_players: dict[str, None] = {}
    if asks_again:
        for turn in trial.turns:
            for answer in turn.answers:
                for name in answer.fields:
                    fields[name] = None
                    fields_of_players[f"{name}.{answer.player}"] = None
    names_known = list(trial.measures(trial.config))
    names_known += [series.column for series in series_of(trial)]
    if outcome is None:
        # All fields of recorded replies; in a new run what the world names first, such as its loss.
        outcome = list(fields) if asks_again else names_known[:1]
    if isinstance(outcome, str) or callable(outcome):
        outcome = [outcome]
    if isinstance(outcome, Sequence | Mapping) and not outcome:
        return {}
    outcomes = labelled("outcome", outcome)
    if len(outcomes) > _MOST_OUTCOMES:
        raise ConfigError(
            f"outcome= names {len(outcomes):,} outcomes, and a study has at most {_MOST_OUTCOMES}; "
            "all of them are adjusted for one another, so that few are better"
        )
    frame = trial.to_frame()
    names_known += [*fields, *fields_of_players, *map(str, frame.columns)]
    # A mapping in a state may be filled later: its field is known, its columns are not.
    state_fields = getattr(type(trial.state), "model_fields", ())
    for item in outcomes.values():
        if callable(item):
            continue
        name = plain_text(item).removesuffix(LAST)
        field = name.partition(".")[0]
        key = name.rpartition(".")[2]
        # "coins.Ann@lst" is a mistyped "@last", and not a player's name.
        may_come = field in state_fields and "@" not in key
        if name not in names_known and not may_come:
            raise ConfigError(
                f"outcome {brief(item)} is not a column of "
                f"{type(trial).__name__}{among(name, names_known)}"
            )
    return outcomes


@dataclass(frozen=True, slots=True)
class OutcomeReader:
    """Reads outcomes of a study's runs.

    Attributes:
        files: the files of the runs.
    """

    files: StudyFiles

    def rows_that_count(self, rows: Mapping[int, Any]) -> list[Any]:
        """Return a run's turns; of a situation only the turn that was asked again."""
        if self.files.player.world.asks_again:
            last = max(rows)
            return [rows[last]]
        return list(rows.values())

    def rows_of(
        self,
        entry: StudyRun,
        outcomes: Mapping[str, Outcome],
    ) -> Iterator[dict[str, Any]]:
        """Yield a row for each value of a job, without the columns that all of them share."""
        job = self.files.jobs[entry.key]
        arm = self.files.player.arms[entry.arm]
        labels = list(self.files.player.world.wordings(arm))
        contents_by_play: Contents = {}
        if entry.status == "done":
            contents_by_play = self.files.contents(entry)
        for play in job.plays:
            contents = contents_by_play.get(play)
            # Loaded only if an outcome needs the run, and once for all outcomes of a play.
            load = cache(partial(self.files.load, job, play))
            for label, outcome in outcomes.items():
                values: Mapping[int, Any]
                if contents is None:
                    # A failed run has a row without a value, so that it is counted as left out.
                    values = {entry.turns: None}
                else:
                    values = self._values(job, label, outcome, contents, load)
                for turn, value in values.items():
                    yield {
                        "wording": labels[play.wording],
                        "replicate": play.sample,
                        "outcome": label,
                        "turn": turn,
                        "value": _as_value(value),
                    }

    def _values(
        self,
        job: Job,
        label: str,
        outcome: Outcome,
        contents: RunContents,
        load: Callable[[], Run],
    ) -> Mapping[int, Any]:
        """Return an outcome of one play, by turn."""
        if self.files.player.world.asks_again and contents.info.turns < job.end_turn:
            # The world was done before, so that no turn was asked again.
            return {job.end_turn: None}
        if isinstance(outcome, str):
            return self._by_name(outcome, contents, load)
        return _by_function(outcome, load(), label, job)

    def _by_name(
        self,
        outcome: str,
        contents: RunContents,
        load: Callable[[], Run],
    ) -> Mapping[int, Any]:
        """Return an outcome by turn: a measure of the whole run, a column, a field of replies."""
        world = self.files.player.world
        cls = world.cls
        rows = contents.rows
        last = max(rows)
        column = outcome.removesuffix(LAST)
        # A measure may depend on parameters. It comes before a column of the same name.
        measures = cls.measures(config_of(contents.info, cls))
        if outcome in measures:
            frame = frame_of(list(rows.values()))
            return {last: measures[outcome](frame)}
        # From all turns, since a column may appear late.
        columns: dict[str, None] = {}
        for row in rows.values():
            columns.update(dict.fromkeys(row))
        if column not in columns:
            if world.asks_again:
                asked_again = load().turns[-1]
                return {last: _in_replies(asked_again, outcome)}
            raise ConfigError(
                f"outcome {brief(outcome)}: not a column of these{among(column, columns)}"
            )
        if world.asks_again or outcome.endswith(LAST):
            return {last: rows[last].get(column)}
        values = {turn: row.get(column) for turn, row in rows.items()}
        # The initial state, which no arm has influenced.
        first = min(rows)
        del values[first]
        return values


def _as_value(value: Any) -> float | str:
    """Return an outcome's value for its cell in the table."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        return value
    # Truth values become 0 and 1, whose mean is a share.
    return float(value)


def _in_replies(turn: Any, outcome: str) -> Any:
    """Return the mean or the text of a field in a turn's replies; None where no reply has it.

    Raises:
        ConfigError: several replies have texts.
    """
    name, _, player = outcome.partition(".")
    answers = []
    for answer in turn.answers:
        is_of_player = player in ("", answer.player)
        if is_of_player and name in answer.fields:
            answers.append(answer)
    values = [answer.fields[name] for answer in answers]
    if not values:
        return None
    are_numbers = all(isinstance(value, int | float) for value in values)
    if are_numbers:
        return fmean(values)
    # Texts have no mean, and which text counts is not guessed.
    if len(values) > 1:
        raise ConfigError(
            f"outcome {outcome!r} is a text of {len(values)} players; name one: "
            f"'{name}.{answers[0].player}', or make a number of them: outcome=lambda run: ..."
        )
    return values[0]


def _by_function(
    outcome: Callable[[Run], Any],
    run: Run,
    label: str,
    job: Job,
) -> Mapping[int, Any]:
    """Return the value of a user's function of a run, at the run's last turn.

    Raises:
        ConfigError: the function raised something, or returned neither a number nor a text.
    """
    try:
        # A user's function may raise anything; so may float() of what it returns.
        value = outcome(run)
        if value is not None and not isinstance(value, str):
            value = float(value)
        return {run.turn_number: value}
    except Exception as error:
        raise ConfigError(
            f"outcome {label!r} fails for arm {job.arm!r}, {job.where}: {error_text(error)}; "
            "return a number or a text, and None where a run has neither"
        ) from error
