"""Whom tools act for: the user as authenticated, never what a model writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["IDENTITY", "is_identity", "schema_without_user", "without_user"]

IDENTITY = "user_id"
"""The argument that says whom a tool acts for."""


def without_user(value: Any) -> Any:
    """Return arguments without the user's identity, as deep as the model wrote it there."""
    if isinstance(value, Mapping):
        return {key: without_user(item) for key, item in value.items() if not is_identity(key)}
    return list(map(without_user, value)) if isinstance(value, list | tuple) else value


def schema_without_user(schema: Any) -> Any:
    """Return a JSON schema that does not ask for the user's identity, in no part of it."""
    if isinstance(schema, list | tuple):
        return list(map(schema_without_user, schema))
    if not isinstance(schema, Mapping):
        return schema
    slim = {key: schema_without_user(item) for key, item in schema.items()}
    if isinstance(schema.get("properties"), Mapping):
        slim["properties"] = _others(slim["properties"])
    if isinstance(schema.get("required"), list | tuple):
        slim["required"] = [name for name in schema["required"] if not is_identity(name)]
    return slim


def _others(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in properties.items() if not is_identity(key)}


def is_identity(key: object) -> bool:
    """Say whether an argument's name is one for the user's identity, in any spelling."""
    return re.sub(r"[^a-z]", "", str(key).lower()) == "userid"
