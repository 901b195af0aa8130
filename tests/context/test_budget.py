from __future__ import annotations

import random

import pytest
from context_kit import build, make_module

from llmsim_lab.context import AgentContextBuilder
from llmsim_lab.context._builder import estimate_tokens, shorten
from llmsim_lab.errors import ConfigError

LONG = "It rains and rains. " * 40


def cuts_of(prompt: object) -> dict[str, str]:
    return {cut.name: cut.reason for cut in prompt.provenance.cuts}  # type: ignore[attr-defined]


def test_tokens_are_estimated_at_four_bytes_each() -> None:
    assert [estimate_tokens(text) for text in ("", "a", "abcd", "abcde", "日本")] == [0, 1, 1, 2, 2]


def test_without_a_budget_nothing_is_cut() -> None:
    prompt = build(make_module(context=LONG))
    assert LONG.strip() in prompt
    assert prompt.provenance.cuts == ()


def test_the_module_of_lowest_priority_goes_first_and_the_provenance_says_so() -> None:
    modules = [make_module(name, context=LONG, priority=p) for name, p in (("a", 10), ("b", 90))]
    prompt = build(*modules, budget_tokens=400)
    assert "=== A ===" not in prompt
    assert "=== B ===" in prompt
    assert cuts_of(prompt) == {"A": "left out: budget_tokens=400, priority 10"}
    [cut] = prompt.provenance.cuts
    assert (cut.source, cut.tokens) == ("module a", 203)


def test_among_equals_the_last_module_goes_first() -> None:
    modules = [make_module(name, context=LONG) for name in "ab"]
    assert list(cuts_of(build(*modules, budget_tokens=400))) == ["B"]


@pytest.mark.parametrize("budget", [180, 250, 400, 700])
def test_a_prompt_keeps_to_its_budget(budget: int) -> None:
    modules = [make_module(name, context=LONG) for name in "ab"]
    prompt = build(*modules, said={"Bo": LONG, "Cleo": "Short."}, budget_tokens=budget)
    assert estimate_tokens(prompt) <= budget


def test_when_no_module_is_left_the_longest_replies_are_shortened() -> None:
    prompt = build(
        make_module(context=LONG), said={"Bo": LONG, "Cleo": "Short."}, budget_tokens=220
    )
    assert '…"\n' in prompt
    assert 'Cleo: "Short."' in prompt
    assert set(cuts_of(prompt)) == {"WEATHER", "WHAT OTHERS DID"}
    assert cuts_of(prompt)["WHAT OTHERS DID"].endswith("tokens: budget_tokens=220")


def test_a_budget_that_even_the_core_exceeds_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"budget_tokens=50, but .* need about \d+ tokens"):
        build(make_module(context=LONG), said={"Bo": LONG}, budget_tokens=50)


def test_a_module_keeps_to_the_tokens_it_may_use() -> None:
    prompt = build(make_module(context=LONG, max_tokens=30))
    [span] = [span for span in prompt.spans if span.name == "WEATHER"]
    assert span.tokens is not None
    assert 20 < span.tokens <= 30
    assert span.of(prompt.user).endswith(" …")
    assert cuts_of(prompt) == {"WEATHER": f"shortened to {span.tokens} tokens: max_tokens=30"}


def test_a_module_that_may_use_next_to_nothing_is_left_out() -> None:
    prompt = build(make_module(context=LONG, max_tokens=2))
    assert "WEATHER" not in prompt
    assert cuts_of(prompt) == {"WEATHER": "left out: max_tokens=2"}


def test_a_modules_first_sections_use_up_its_allowance() -> None:
    module = make_module(
        sections=[{"title": "ONE", "text": "Rain."}, {"title": "TWO", "text": LONG}], max_tokens=12
    )
    assert list(cuts_of(build(module))) == ["TWO"]


def test_tokens_can_be_counted_by_ones_own_function() -> None:
    prompt = build(
        make_module(context=LONG), budget_tokens=120, count_tokens=lambda t: len(t.split())
    )
    assert len(prompt.split()) <= 120
    assert prompt.spans[0].tokens == len(prompt.spans[0].of(prompt.user).split())


def test_a_text_is_cut_between_words() -> None:
    assert shorten("=== A ===\none two three four", 6, estimate_tokens) == "=== A ===\none two …"


def test_a_section_of_which_only_the_heading_would_stay_is_not_kept() -> None:
    assert shorten("=== A ===\nunbreakable", 5, estimate_tokens) is None


WORDS = ("We", "hold", "the   line", "at", "sea.\n\n\n", "Nothing", "moves,", "and", "no-one", "x")
TEXTS = [
    " ".join(random.Random(f"{seed}/{place}").choices(WORDS, k=seed % 7 * 5 + place))
    for seed in range(12)
    for place in range(4)
]
MARKED = [
    'We wait.\nBo: "I give in."\nThat is all.',
    "Now.\n=== SITUATION ===\nAll is well.",
    "Größe",
]


@pytest.mark.parametrize("seed", range(30))
def test_replies_are_cut_to_the_same_length_however_that_is_found(seed: int) -> None:
    chance = random.Random(seed)
    said = chance.sample(TEXTS, k=chance.randint(1, 5))
    if seed % 5 == 0:
        said.append(chance.choice(MARKED))
    responses = {f"A{place}": words for place, words in enumerate(said)}

    def counted(text: str) -> int:
        """The same estimate as a function of its own, which is asked about whole texts."""
        return estimate_tokens(text)

    builders = [
        AgentContextBuilder("1 day", False, count_tokens=count)
        for count in (estimate_tokens, counted)
    ]
    parts = [builder.others_part("Ada", 2, responses) for builder in builders]
    assert parts[0].text == parts[1].text
    cut = [[part.shorter(tokens) for tokens in range(400)] for part in parts if part.shorter]
    assert cut[0] == cut[1]
    assert any(cut[0])
    assert all(estimate_tokens(text) <= tokens for tokens, text in enumerate(cut[0]) if text)
