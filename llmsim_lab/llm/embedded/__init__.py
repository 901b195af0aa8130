"""Small real models, run on this machine by a child process of ours."""

from llmsim_lab.llm.embedded.backend import EmbeddedBackend, runtime_installed
from llmsim_lab.llm.embedded.fetch import get_model, rich_progress
from llmsim_lab.llm.embedded.store import (
    default_model,
    installed_models,
    list_models,
    models_folder,
    remove_model,
)

__all__ = [
    "EmbeddedBackend",
    "default_model",
    "get_model",
    "installed_models",
    "list_models",
    "models_folder",
    "remove_model",
    "rich_progress",
    "runtime_installed",
]
