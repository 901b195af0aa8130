"""The tables of what people did agree with the studies' own words."""

from __future__ import annotations

import pandas as pd
import pytest

from llmsim_lab import data_path
from llmsim_lab.errors import ConfigError
from llmsim_lab.people import load_people, published

TABLES = sorted(path.stem for path in data_path("people").glob("*.csv"))


def cell(study: str, condition: str, measure: str, statistic: str) -> pd.Series:
    table = load_people(study)
    of_condition = table[(table["condition"] == condition) & (table["measure"] == measure)]
    return of_condition[of_condition["statistic"] == statistic]["value"]


@pytest.mark.parametrize("study", TABLES)
def test_each_row_names_its_source_and_the_place_read(study: str) -> None:
    table = load_people(study)
    assert table["source"].str.startswith("https://").all()
    assert (table["place"].str.len() > 4).all()
    assert table["value"].notna().all()
    shares = table[table["statistic"] == "share"]["value"]
    assert shares.between(0, 1).all()
    counts = table[(table["statistic"] == "count") & table["n"].notna()]
    assert (counts["value"] <= counts["n"]).all()


def test_the_tables_are_those_that_their_page_names() -> None:
    page = data_path("people/README.md").read_text(encoding="utf-8")
    named = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(named) == TABLES


# --- Forsythe et al. 1994 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "stake", "n", "mean", "nothing", "half_or_more"),
    [
        ("dictator $5", 5, 45, 0.222, 16 / 45, 0.22),
        ("ultimatum $5", 5, 43, 0.455, 0.0, 0.65),
        ("dictator $10", 10, 24, 0.233, 0.21, 0.21),
        ("ultimatum $10", 10, 24, 0.467, 0.0, 0.75),
    ],
)
def test_offers_are_as_many_and_as_large_as_the_paper_says(
    condition: str, stake: int, n: int, mean: float, nothing: float, half_or_more: float
) -> None:
    figure = published("forsythe_1994", condition=condition, measure="offer_usd", divide_by=stake)
    offers = pd.Series(figure.values)
    assert figure.n == n
    assert offers.between(0, 1).all()
    assert figure.mean == pytest.approx(mean, abs=0.001)
    assert (offers == 0).mean() == pytest.approx(nothing, abs=0.005)
    assert (offers >= 0.5).mean() == pytest.approx(half_or_more, abs=0.005)


def test_of_offers_below_half_three_of_fifteen_and_one_of_six_were_rejected() -> None:
    table = load_people("forsythe_1994")
    for stake, below, rejected in ((5, 15, 3), (10, 6, 1)):
        offers = table[table["condition"] == f"ultimatum ${stake}"]
        low = offers[offers["value"] < stake / 2]
        assert (len(low), (low["rejected"] == "yes").sum()) == (below, rejected)
        assert (offers["rejected"] == "yes").sum() == rejected


# --- Nagel 1995 -----------------------------------------------------------------------------------


def test_sessions_fall_as_fast_as_the_table_of_the_paper_says() -> None:
    table = load_people("nagel_1995")
    sessions = [name for name in table["condition"].unique() if "session" in name]
    assert len(sessions) == 7
    for session in sessions:
        for statistic in ("mean", "median"):
            guesses = cell("nagel_1995", session, "guess", statistic).tolist()
            assert len(guesses) == 4
            measure = f"rate of decrease of the {statistic}"
            [rate] = cell("nagel_1995", session, measure, "share")
            assert 1 - guesses[3] / guesses[0] == pytest.approx(rate, abs=0.008)


@pytest.mark.parametrize(("factor", "sessions"), [("1/2", 3), ("2/3", 4)])
def test_first_periods_of_the_sessions_have_the_mean_of_the_figure(
    factor: str, sessions: int
) -> None:
    first = [
        cell("nagel_1995", f"factor {factor}, session {number}", "guess", "mean").iloc[0]
        for number in range(1, 8)
        if len(cell("nagel_1995", f"factor {factor}, session {number}", "guess", "mean"))
    ]
    assert len(first) == sessions
    whole = published("nagel_1995", condition=f"factor {factor}", measure="guess", period=1)
    # Sessions have 15 to 18 people, so that their plain mean is near and not the same.
    assert sum(first) / sessions == pytest.approx(whole.mean, abs=0.5)
    assert whole.is_mean_only


def test_as_many_steps_as_people_times_three_periods_may_fall() -> None:
    for factor, people in (("1/2", 48), ("2/3", 67)):
        condition = f"factor {factor}"
        figure = published("nagel_1995", condition=condition, measure="falls from period to period")
        assert figure.n == 3 * people
        first = published("nagel_1995", condition=condition, measure="guess", period=1)
        assert first.n == people


# --- the others -----------------------------------------------------------------------------------


def test_gifts_to_the_pot_decay_over_ten_rounds() -> None:
    shares = cell("public_goods", "10 rounds, 20 tokens", "share", "mean").tolist()
    assert len(shares) == 10
    assert (shares[0], shares[-1]) == (0.616, 0.206)
    assert shares[1:] == sorted(shares[1:], reverse=True)
    for period in (1, 10):
        nothing, everything = (
            published(
                "public_goods", condition="10 rounds, 20 tokens", measure=name, period=period
            ).mean
            for name in ("gives nothing", "gives all")
        )
        share = published(
            "public_goods", condition="10 rounds, 20 tokens", measure="share", period=period
        )
        assert everything < share.mean < 1 - nothing
        assert share.sd is not None


def test_half_is_sent_and_returned_where_the_rest_is_not_known() -> None:
    sent = published("berg_1995", condition="no history", measure="sent_usd", divide_by=10)
    assert (sent.n, sent.mean, sent.is_mean_only) == (32, 0.516, True)
    assert published("berg_1995", condition="social history", measure="returned_usd").mean == 6.46
    everything = published("berg_1995", condition="no history", measure="sends_all")
    assert (everything.count, everything.n) == (5, 32)


def test_most_cooperate_where_they_do_not_know() -> None:
    shares = [
        published("shafir_1992", condition=condition, measure="cooperates", n=80).mean
        for condition in ("the other competes", "the other cooperates", "not known")
    ]
    assert [round(100 * share) for share in shares] == [3, 16, 37]
    pattern = published(
        "shafir_1992",
        condition="all three",
        measure="cooperates only where it is not known",
    )
    assert round(100 * pattern.mean) == 25


def test_each_pair_of_problems_turns_the_answer_round() -> None:
    table = load_people("tversky_1981")
    assert dict(zip(table["condition"], table["value"], strict=True)) == {
        "lives saved": 72,
        "lives lost": 22,
        "money lost": 88,
        "ticket lost": 46,
        "off a small price": 68,
        "off a large price": 29,
    }
    assert table["n"].tolist() == [152, 155, 183, 200, 93, 88]


def test_dissents_of_presidents_and_governors_are_all_dissents() -> None:
    table = load_people("fomc_dissents").set_index("condition")["value"]
    whole = table["1957-2013, all members"]
    assert table["1957-2013, presidents"] + table["1957-2013, governors"] == whole == 449
    assert table["1994-2013, all members"] - table["1994-2013, presidents"] == 4


# --- what is not there ----------------------------------------------------------------------------


def test_a_wrong_name_is_an_error_that_shows_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'nagel_1994' \(did you mean.*nagel_1995"):
        load_people("nagel_1994")
    with pytest.raises(ConfigError, match=r"no condition='dictator'.*; it has 'dictator \$5', "):
        published("forsythe_1994", condition="dictator", measure="offer_usd")
    with pytest.raises(ConfigError, match=r"no condition=''; it has 'dictator \$5', "):
        published("forsythe_1994")
    with pytest.raises(ConfigError, match=r"no measure='' in 'no history'; it has 'sent_usd', "):
        published("berg_1995", condition="no history")
    with pytest.raises(ConfigError, match="of the periods 1, and period=None was given"):
        published("nagel_1995", condition="factor 4/3", measure="guess")
    with pytest.raises(ConfigError, match="has no mean and no share"):
        published("shafir_1992", condition="all three", measure="people")
