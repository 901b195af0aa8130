"""Print what CHANGELOG.md says of a version: ``python scripts/release_notes.py 0.1.0``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes_of(version: str, changelog: str) -> str:
    """Return the section of a version, without its heading.

    Raises:
        ValueError: there is none.
    """
    _, *parts = re.split(r"^## +", changelog, flags=re.MULTILINE)
    sections: dict[str, str] = {}
    for part in parts:
        heading, _, text = part.partition("\n")
        sections[re.split(r"[ ,]", heading)[0]] = text.strip()
    wanted = version.removeprefix("v")
    if wanted not in sections:
        raise ValueError(f"CHANGELOG.md has no section {wanted}; it has {', '.join(sections)}")
    return sections[wanted]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} VERSION")
    try:
        sys.stdout.write(f"{notes_of(sys.argv[1], CHANGELOG.read_text(encoding='utf-8'))}\n")
    except ValueError as error:
        sys.exit(str(error))
