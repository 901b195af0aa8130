"""A room: a class in one world, each from a phone or laptop of their own; extra ``room``."""

from __future__ import annotations

from llmsim_lab.room._journal import forget_names
from llmsim_lab.room.room import Room

__all__ = ["Room", "forget_names"]
