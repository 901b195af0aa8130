"""What defines a run, written beside it: enough to play it again, and to tell two runs apart."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from llmsim_lab.calls import ModelInfo
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.llm.tape.checks import manifest_faults
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation.config import SimulationConfig

if TYPE_CHECKING:
    from llmsim_lab.simulation.simulation import Simulation

__all__ = [
    "check_manifest",
    "config_of",
    "llm_config_of",
    "make_manifest",
    "model_differs",
    "prompts_of",
    "with_model",
]

_GIVEN = ("agents", "validator", "engine")


def make_manifest(simulation: Simulation) -> dict[str, Any]:
    """Return a run's manifest: configuration, prompts with their text, versions, given parts.

    The model is not in it yet; it is asked who it is when the run first needs it.
    """
    parts: dict[str, Any] = {"validator": simulation.validator, "engine": simulation.engine}
    parts |= {f"agent:{agent.name}": agent for agent in simulation.agents}
    prompts = {
        place: _prompt_entry(part.prompt)
        for place, part in parts.items()
        if isinstance(getattr(part, "prompt", None), Prompt)
    }
    return {
        "package": version("llmsim-lab"),
        "git": _git_revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": simulation.config.seed,
        "config": simulation.config.model_dump(mode="json", by_alias=True),
        "prompts": prompts,
        "given": sorted(simulation.given),
        "llm": simulation.llm_client.config.model_dump(mode="json")
        if simulation.llm_client
        else None,
        "model": None,
    }


def _prompt_entry(prompt: Prompt) -> dict[str, Any]:
    return {
        "name": prompt.name,
        "digest": prompt.digest,
        "parent": prompt.parent,
        "text": prompt.text,
    }


def with_model(manifest: Mapping[str, Any], info: ModelInfo) -> dict[str, Any]:
    """Return the manifest with the model in it."""
    return {**manifest, "model": asdict(info)}


def model_differs(manifest: Mapping[str, Any], info: ModelInfo) -> str | None:
    """Say how a model differs from the recorded one, or None: same name, and same weights."""
    recorded = manifest.get("model")
    if recorded is None:
        return None
    for key in ("backend", "name", "digest"):
        now = getattr(info, key)
        if recorded[key] != now:
            return f"its {key} is {now!r}, the recorded one's is {recorded[key]!r}"
    return None


def config_of(manifest: Mapping[str, Any]) -> SimulationConfig:
    """Return the configuration that a run was recorded with.

    Raises:
        TapeError: this version of the package does not understand it.
    """
    try:
        return SimulationConfig.model_validate(manifest["config"])
    except (KeyError, ValidationError) as error:
        made_by = manifest.get("package", "an unknown version")
        raise TapeError(
            f"the run's configuration, recorded by llmsim-lab {made_by}, is not understood by this "
            f"version: {error}"
        ) from error


def check_manifest(run: int, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that lacks what a run is rebuilt from.

    Raises:
        TapeError: it says what is wrong; the tape is damaged.
    """
    faults = manifest_faults(manifest)
    if not faults and not all(name in _GIVEN for name in manifest["given"]):
        faults = ["it was given something that no run takes"]
    if faults:
        raise TapeError(f"run {run} on the tape is damaged: {'; '.join(faults[:3])}")


def llm_config_of(manifest: Mapping[str, Any], **changes: Any) -> LLMConfig | None:
    """Return the recorded settings of the model's client, with changes; None if it had none.

    Raises:
        TapeError: this version of the package does not understand them.
    """
    settings = manifest["llm"]
    try:
        return None if settings is None else LLMConfig(**{**settings, **changes})
    except (TypeError, ValidationError) as error:
        raise TapeError(f"the run's model settings are not understood: {error}") from error


def prompts_of(manifest: Mapping[str, Any]) -> dict[str, Prompt]:
    """Return the recorded prompts by the part that used them, as ``agent:NAME`` or ``engine``.

    Raises:
        TapeError: a prompt's text does not have the digest recorded for it.
    """
    prompts = {}
    for place, entry in manifest.get("prompts", {}).items():
        prompt = Prompt.parse(entry["text"], name=entry["name"], parent=entry["parent"])
        if prompt.digest != entry["digest"]:
            raise TapeError(f"the recorded prompt of {place} does not have its recorded digest")
        prompts[place] = prompt
    return prompts


def _git_revision() -> str | None:
    """Return the revision of the working folder, with ``+`` if it has changes; None outside git."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        changes = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")
