"""A world whose every word is a stranger's: names, columns, prompts, replies, notes."""

from __future__ import annotations

from typing import Any

from llmsim_lab import Ask, Reply, Run, State

POISON = [
    "<script>window.hacked=1</script><img src=x onerror=window.hacked=2>",
    "'\"><svg onload=window.hacked=3></title></style><style>body{display:none}</style><!--",
    "\x1b[2J\x1b]0;pwn\x07\x9b31m",
    "\u202eevil\u2066\u200f",
    "a\x00b\x08\x7f",
    "[bold red]loud[/bold red] [link=file:///etc/passwd]click[/link] [/]",
    "$\\frac{x}{ \\input{/etc/passwd} %s {0.__class__}",
    '=HYPERLINK("http://example.invalid")',
    " =1+1",
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\uff1d1+1",
    "__proto__",
    "constructor",
    "{{ 7*7 }}{% include 'x' %}",
    "javascript:window.hacked=4",
    "line\u2028one\u2029two\x85three\r\nfour",
    "\ud800",
]
SCRIPT, ATTRIBUTE, TERMINAL, DIRECTIONS, CONTROLS, MARKUP, LATEX, FORMULA = range(8)
CONSTRUCTOR = 15
"""Places in the list, by what tries to obey the word."""
HARMLESS = [f"word {number}" for number in range(len(POISON))]


class Words(State):
    coins: dict[str, float] = {}
    said: str = ""


class Saying(Reply):
    word: str
    amount: int


class Closing(Reply):
    """What people are asked at the end."""

    word: str


class Poisoned(Run[Words]):
    """Each turn each player says a word; all words come from a list."""

    words: tuple[str, ...] = tuple(POISON)

    def start(self) -> Words:
        return Words(coins=dict.fromkeys(self.names, 1.0), said=self.words[0])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(word for word in self.words if word.strip() and "\ud800" not in word)

    async def turn(self, state: Words, ask: Ask) -> Words:
        sayings = await ask.each(self.names, Saying, "You are {{ name }}. {{ state.said }} What?")
        for name, saying in sayings.items():
            ask.note(name, heard=saying.word)
        text = self.words[ask.turn % len(self.words)]
        ask.note(text=text, noted=text)
        coins = {name: float(saying.amount) for name, saying in sayings.items()}
        return state.replace(coins=coins, said=text)

    def rule(self, question: Any) -> Saying:
        return Saying(word=self.words[question.turn], amount=1)
