"""What defines a run, written beside it: enough to play it again, and to tell two runs apart."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from llmsim_lab.calls import ModelInfo
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.llm.tape import RunInfo
from llmsim_lab.llm.tape._codec import manifest_faults
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs.registry import kind_of_manifest

if TYPE_CHECKING:
    from llmsim_lab.runs.base import Run

__all__ = [
    "check_manifest",
    "config_of",
    "entries_of",
    "llm_config_of",
    "make_manifest",
    "model_differs",
    "prompts_of",
    "with_model",
]


def make_manifest(simulation: Run) -> dict[str, Any]:
    """Return a run's manifest: kind, configuration, prompts with their text, versions, given parts.

    The model is not in it yet; it is asked who it is when the run first needs it.
    """
    client = simulation.llm_client
    return {
        "kind": simulation.kind,
        "package": version("llmsim-lab"),
        "git": _git_revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": simulation.config.seed,
        "config": simulation.config.model_dump(mode="json", by_alias=True),
        "prompts": entries_of(simulation.prompts),
        "code": simulation.code_digests,
        "given": sorted(simulation.given),
        "llm": client.config.model_dump(mode="json") if client else None,
        "model": None,
    }


def entries_of(prompts: Mapping[str, Prompt]) -> dict[str, dict[str, Any]]:
    """Return prompts as a manifest has them, by their places."""
    return {place: _entry(prompt) for place, prompt in prompts.items()}


def _entry(prompt: Prompt) -> dict[str, Any]:
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


def config_of(info: RunInfo, kind: Any = None) -> Any:
    """Return the configuration that a run was recorded with, of its kind's own type.

    Args:
        info: the run.
        kind: its class; found by its name if not given.

    Raises:
        TapeError: this version of the package does not understand it.
    """
    manifest = info.manifest
    try:
        kind = kind or kind_of_manifest(info.id, manifest)
        return kind.config_type.model_validate(manifest["config"])
    except (KeyError, ValidationError) as error:
        made_by = manifest.get("package", "an unknown version")
        raise TapeError(
            f"the run's configuration, recorded by llmsim-lab {made_by}, is not understood by this "
            f"version: {error}"
        ) from error


def check_manifest(run: int, manifest: Mapping[str, Any], part_names: Collection[str]) -> None:
    """Refuse a manifest that lacks what a run is rebuilt from.

    Args:
        run: the run's number.
        manifest: its manifest.
        part_names: the parts that a run of its kind may be given.

    Raises:
        TapeError: it says what is wrong; the tape is damaged.
    """
    faults = manifest_faults(manifest)
    if not faults and not all(name in part_names for name in manifest["given"]):
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
    """Return the recorded prompts by the part that used them, as ``engine`` or ``agent:Ann``.

    Raises:
        TapeError: a prompt's text does not have the digest recorded for it.
    """
    prompts = {}
    parsed: dict[tuple[str, ...], Prompt] = {}
    for place, entry in manifest.get("prompts", {}).items():
        text, name, parent = entry["text"], entry["name"], entry["parent"]
        prompt = parsed.get((text, name, parent))
        if prompt is None:
            prompt = Prompt.parse(text, name=name, parent=parent)
            parsed[text, name, parent] = prompt
        if prompt.digest != entry["digest"]:
            raise TapeError(f"the recorded prompt of {place} does not have its recorded digest")
        prompts[place] = prompt
    return prompts


def _git_revision() -> str | None:
    """Return the revision of the working folder, with ``+`` if it has changes; None outside git.

    The folder may be anybody's, and its git configuration, hooks and submodules name commands. So
    git is only asked where things are, which runs none of them; what has changed, it is asked with
    a configuration of our own in the place of the folder's and the user's.
    """
    asked = ["HEAD", "--show-toplevel", "--git-path", "objects", "--git-path", "index"]
    where = (_git("rev-parse", "--path-format=absolute", *asked) or "").split("\n")
    if len(where) != 4:  # outside git, or a folder whose name has several lines
        return None
    head, top, objects, index = where
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "refs").mkdir()
        (Path(folder) / "HEAD").write_text(f"{head}\n")
        (Path(folder) / "config").write_text(_OWN_CONFIG if len(head) == 40 else _LONG_HASHES)
        changes = _git(
            *("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"),
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
            | {
                "GIT_DIR": folder,
                "GIT_WORK_TREE": top,
                "GIT_OBJECT_DIRECTORY": objects,
                "GIT_INDEX_FILE": index,
                "GIT_OPTIONAL_LOCKS": "0",  # the folder's index is not written
                "GIT_CONFIG_GLOBAL": os.devnull,
                "GIT_CONFIG_NOSYSTEM": "1",
            },
        )
    return head if changes == "" else f"{head}+"


_OWN_CONFIG = "[core]\n\trepositoryFormatVersion = 0\n\tfileMode = false\n"
_LONG_HASHES = (
    "[core]\n\trepositoryFormatVersion = 1\n\tfileMode = false\n"
    "[extensions]\n\tobjectFormat = sha256\n"
)


def _git(*words: str, env: Mapping[str, str] | None = None) -> str | None:
    """Return what git says; None if it fails, or is not there."""
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=5, check=True, env=env
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
