"""Measure on a real model whether it prefers the option that stands first, and what batching saves.

``nice python benchmarks/position_bias.py --out data/social/position_bias.csv`` asks questions about
posts of ``data/social`` with the options in every rotation; every answer is a row of the
file. Then the same questions go to the model one by one and all at once, in turn, with the
options in an order it has not seen, and the wall times are compared. Some ten minutes on two
cores with the embedded model ``qwen2.5-coder-1.5b``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from llmsim_lab import connect
from llmsim_lab._util.files import data_path
from llmsim_lab.llm import LLMClient
from llmsim_lab.statechart import AgentState, Post, Reasoner, SocialAgent, SocialConfig, Statechart
from llmsim_lab.statechart._agent import GUARDS, interest_match
from llmsim_lab.statechart._config import seed_posts
from llmsim_lab.statechart._reasoner import MoveQuestion
from llmsim_lab.study import position_bias

__all__ = ["main", "make_questions", "time_batches"]


def make_questions(config: SocialConfig, count: int) -> list[MoveQuestion]:
    """Return what as many users would decide about a post that interests each."""
    chart = Statechart.load("social_feed", guards=GUARDS)
    options = chart.valid_targets(AgentState.EVALUATING, "decides")
    posts = [
        Post(id=number, author=post.author, text=post.text, topics=post.topics)
        for number, post in enumerate(seed_posts(), start=1)
    ]
    questions = []
    for place, profile in enumerate(config.agents[:count]):
        agent = SocialAgent(
            profile.name, profile.interests, profile.personality, state=AgentState.EVALUATING
        )
        liked = [
            post for post in posts if interest_match(agent, post) and post.author != agent.name
        ]
        post = liked[place % len(liked)]
        questions.append(MoveQuestion(agent, AgentState.EVALUATING, "decides", options, post))
    return questions


async def time_batches(
    client: LLMClient, questions: Sequence[MoveQuestion], repeats: int
) -> dict[str, Any]:
    """Time questions one by one and all at once; each repeat shows an order of its own."""
    seconds: dict[str, list[float]] = {"one by one": [], "at once": []}
    for repeat in range(repeats):
        for way, times in seconds.items():
            reasoner = Reasoner(client, seed=1000 + 2 * repeat + (way == "at once"))
            began = time.perf_counter()
            if way == "at once":
                await reasoner.decide(questions)
            else:
                for one in questions:
                    await reasoner.decide([one])
            times.append(time.perf_counter() - began)
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    return {
        "questions": len(questions),
        "in_flight": client.config.concurrency,
        "seconds": {way: [round(value, 2) for value in times] for way, times in seconds.items()},
        "one_by_one_to_at_once": round(median(ratios), 2),
    }


async def measure(model: str, questions: int, repeats: int, out: Path) -> dict[str, Any]:
    """Measure both and write the answers."""
    config = SocialConfig(population=questions, reasoner={"kind": "llm"})
    scenario = SocialConfig.from_yaml(data_path("scenarios/harbour_town.yaml"))
    async with connect(model, config=scenario.llm, download=True) as client:
        asked = make_questions(config, questions)
        answers = await Reasoner(client).ask_rotated(asked)
        answers.to_csv(out, index=False)
        info = await client.model_info()
        batches = await time_batches(client, asked[:8], repeats)
    places = position_bias(answers)
    return {
        "model": info.name,
        "places": [asdict(effect) for effect in places],
        "in_words": str(places),
        "batch": batches,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the answers as CSV and show the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--questions", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("position_bias.csv"))
    options = parser.parse_args(arguments)
    figures = asyncio.run(measure(options.model, options.questions, options.repeats, options.out))
    Console().print_json(json.dumps(figures))


if __name__ == "__main__":
    main()
