"""How dense the code is: ratios that were reached over the whole package, with some air.

They measure, and are no aim: where one fails, lay out a line, name a value, or say why.
"""

from __future__ import annotations

import ast
import tokenize as tk
from collections import Counter
from pathlib import Path

import pytest

import llmsim_lab

SPACE = (tk.COMMENT, tk.NL, tk.NEWLINE, tk.INDENT, tk.DEDENT, tk.ENDMARKER, tk.ENCODING)
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
PRONOUNS = {"it", "its", "one", "own", "what", "how", "who", "there", "those", "others", "told"}
MOST = {"tokens": 7.1, "NamedExpr": 0.001, "IfExp": 0.012, "nested": 0.001, "Any": 0.018}


def counted(path: Path) -> Counter[str]:
    """Return how much there is of what ``MOST`` names, and of lines, comments and names bound."""
    counts: Counter[str] = Counter()
    documented: set[int] = set()
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        counts[type(node).__name__] += 1
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documented.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, COMPREHENSIONS):
            inner = any(isinstance(part, COMPREHENSIONS) for part in [*ast.walk(node)][1:])
            counts["nested"] += inner or len(node.generators) > 1
        elif isinstance(node, ast.Name):
            counts["Any"] += node.id == "Any"
            is_bound = isinstance(node.ctx, ast.Store)
            counts["bound"] += is_bound
            counts["pronouns"] += is_bound and node.id in PRONOUNS
    with path.open("rb") as file:
        for token in tk.tokenize(file.readline):
            counts["comments"] += token.type == tk.COMMENT
            if token.type not in SPACE and token.start[0] not in documented:
                counts["tokens"] += 1
                lines.update(range(token.start[0], token.end[0] + 1))
    return counts + Counter(lines=len(lines))


@pytest.mark.process  # 64,000 lines take two seconds
def test_the_code_is_as_plain_as_it_was() -> None:
    counts: Counter[str] = Counter()
    for path in Path(llmsim_lab.__file__).parent.rglob("*.py"):
        counts += counted(path)
    for kind, most in MOST.items():
        assert counts[kind] / counts["lines"] <= most, f"{kind}: {counts[kind]}"
    assert counts["comments"] / counts["lines"] >= 0.067
    assert counts["pronouns"] / counts["bound"] <= 0.004
