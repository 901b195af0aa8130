"""Where what was measured of models is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cards_folder() -> Path:
    """Return the folder that keeps cards: ``$LLMSIM_CARDS``, else the user's cache."""
    chosen = os.environ.get("LLMSIM_CARDS", "").strip()
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("llmsim_lab") / "cards"


def economics_folder(folder: Path | None = None) -> Path:
    """Return where the economic gate's cards are, in a folder of cards, else the usual one."""
    return (folder or cards_folder()) / "economics"
