"""Compare what a server reads of prompts with what it would have to read.

``python benchmarks/prefix_cache.py TAPE ...`` computes from the texts alone which share of the
prompts' characters a server has to read anew that holds the call before (one slot), the last call
of each kind of question, or all earlier prompts of the run (at best). 1 means that nothing is
shared.

``python benchmarks/prefix_cache.py --model embedded:qwen2.5-coder-1.5b`` plays public goods (eight
players, three rounds) through the toolkit, and then sends the same texts, turn by turn in the best
order, straight to another server with the same settings. It prints the tokens that both servers
read and wrote and the time of both: on the clock, and of the servers' processors, which other
programs disturb less. The players' chances are asked; with ``--sentences`` they write answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from llmsim_lab import Ask, Reply, Run, State, connect
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.embedded import child, weights
from llmsim_lab.tape.prompts_read import PromptsRead
from llmsim_lab.types import Attempt

PLAYERS = ("Ann", "Bob", "Cy", "Di", "Ed", "Flo", "Gus", "Hal")
ROUNDS = 3
NUM_CTX = 2048
RULES = """Eight players each have 20 coins in every round and decide how many of them go into a
common pot. The pot is multiplied by 1.6 and shared equally among all eight, whoever gave; what a
player does not give is the player's own. All want to earn as much as they can."""


class Pot(State):
    """All gifts so far, the oldest first."""

    gifts: tuple[dict[str, int], ...] = ()


class Gift(Reply):
    """What a player gives."""

    amount: int


class PublicGoods(Run[Pot]):
    """Eight players fill a pot."""

    sentences: bool = False

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        """Ask all players at once."""
        gifts = await ask.each(
            PLAYERS,
            Gift,
            """{% for gifts in state.gifts %}A round's gifts: {{ gifts }}.
            {% endfor %}How many coins do you give? Your name is {{ name }}.""",
            system=RULES,
            limits={"amount": [0, 5, 10, 15, 20]},
            decide=None if self.sentences else "sample",
        )
        given = {name: gift.amount for name, gift in gifts.items()}
        return Pot(gifts=(*state.gifts, given))


def shares_of(path: Path) -> str:
    """Return in a line which shares of a tape's prompts are read anew."""
    requests = characters = one_slot = by_kind = at_best = 0
    with Tape(path, read_only=True) as tape:
        for run in tape.runs():
            found = PromptsRead()
            for call in tape.calls(run.id):
                found.add(call.attempt)
            requests += found.requests
            characters += found.characters
            one_slot += found.one_slot
            by_kind += found.by_kind
            at_best += found.at_best
    return (
        f"{path.name:24} {requests:5,} requests, {characters:9,} characters, read anew with one "
        f"slot {one_slot / characters:.2f}, each kind held {by_kind / characters:.2f}, at best "
        f"{at_best / characters:.2f}"
    )


# --- on a real model ------------------------------------------------------------------------------


@dataclass(slots=True)
class Cost:
    """What answers took: tokens of the prompts, those read and written, and seconds."""

    prompts: int = 0
    read: int = 0
    written: int = 0
    clock_s: float = 0.0
    processor_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.prompts:6,} tokens of prompts, {self.read:6,} read, {self.written:6,} written, "
            f"{self.clock_s:6.1f} s, {self.processor_s:6.1f} s of the processors"
        )


def processor_s() -> float:
    """Return the processor time of this process's children, seconds."""
    times = [server.cpu_times() for server in psutil.Process().children(recursive=True)]
    return sum(one.user + one.system for one in times)


async def by_toolkit(client: LLMClient, *, sentences: bool) -> tuple[Cost, list[Attempt]]:
    """Play the game; return what it cost, and what was asked."""
    await client.choose("Is the model loaded?", ["yes", "no"])
    run = PublicGoods(llm_client=client, sentences=sentences)
    began, worked = time.perf_counter(), processor_s()
    await run.arun(ROUNDS, progress=False)
    cost = Cost(clock_s=time.perf_counter() - began, processor_s=processor_s() - worked)
    attempts = [attempt for turn in run.turns for call in turn.calls for attempt in call.history]
    for attempt in attempts:
        assert attempt.reply is not None
        prompt = attempt.reply.prompt_tokens or 0
        cost.prompts += prompt
        cost.read += prompt - (attempt.reply.cached_tokens or 0)
        cost.written += attempt.reply.reply_tokens or 0
    return cost, attempts


def by_hand(model: Path, attempts: Sequence[Attempt]) -> Cost:
    """Send the same texts to a new server, sorted in each turn; it writes as many tokens."""
    key = secrets.token_urlsafe()
    settings = str(model), NUM_CTX, weights.usable_cores(), 120, key
    program = [sys.executable, "-P", child.__file__]
    pipe = subprocess.PIPE
    cost = Cost()
    # On a busy machine, threads that wait actively would block the others.
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        address = process.stdout.readline().strip()
        bodies = [_body(attempt) for attempt in sorted(attempts, key=_turn_and_texts)]
        hello = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=address, headers=headers, timeout=600) as server:
            server.post("/v1/chat/completions", json=hello).raise_for_status()
            began, worked = time.perf_counter(), processor_s()
            for body in bodies:
                answer = server.post("/v1/chat/completions", json=body).raise_for_status().json()
                timings = answer["timings"]
                cost.prompts += timings["prompt_n"] + timings["cache_n"]
                cost.read += timings["prompt_n"]
                cost.written += timings["predicted_n"]
            cost.clock_s = time.perf_counter() - began
            cost.processor_s = processor_s() - worked
        process.stdin.close()  # which ends it
    return cost


def _turn_and_texts(attempt: Attempt) -> tuple[int, list[str]]:
    request = attempt.request
    turn = request.site.turn if request.site else None
    return turn or 0, [message.content for message in request.messages]


def _body(attempt: Attempt) -> dict[str, object]:
    """Return a request's body: for as many tokens as were written, or for chances."""
    request, reply = attempt.request, attempt.reply
    assert reply is not None
    messages = [{"role": it.role, "content": it.content} for it in request.messages]
    if request.top_logprobs is not None:
        chances = {"logprobs": True, "top_logprobs": request.top_logprobs, "temperature": 0}
        return {"messages": messages, "max_tokens": 1, **chances}
    return {"messages": messages, "max_tokens": reply.reply_tokens, "ignore_eos": True}


async def compare(model: str, *, sentences: bool) -> str:
    """Return in three lines what the toolkit's and the hand-written loop cost."""
    name = model.removeprefix("embedded:")
    async with connect(model, num_ctx=NUM_CTX, quiet=True) as client:
        toolkit, attempts = await by_toolkit(client, sentences=sentences)
    hand = await asyncio.to_thread(by_hand, weights.find_model(name).path, attempts)
    return (
        f"toolkit       {len(attempts)} requests, {toolkit}\n"
        f"hand-written  {len(attempts)} requests, {hand}\n"
        f"toolkit / hand-written: tokens read {toolkit.read / hand.read:.3f}, clock "
        f"{toolkit.clock_s / hand.clock_s:.3f}, processors "
        f"{toolkit.processor_s / hand.processor_s:.3f}"
    )


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("tapes", nargs="*", type=Path)
    parser.add_argument("--model", help="such as embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--sentences", action="store_true", help="the players write their answers")
    arguments = parser.parse_args()
    for path in arguments.tapes:
        sys.stdout.write(f"{shares_of(path)}\n")
    if arguments.model:
        compared = asyncio.run(compare(arguments.model, sentences=arguments.sentences))
        sys.stdout.write(f"{compared}\n")


if __name__ == "__main__":
    main()
