"""Seeds that follow from words."""

from __future__ import annotations

import hashlib


def seed_from(words: str) -> int:
    """Return the seed that follows from words: 31 bits, which every server takes."""
    digest = hashlib.sha256(words.encode()).digest()
    # 31 bits: some servers take a seed for a signed number.
    return int.from_bytes(digest[:4], "big") >> 1
