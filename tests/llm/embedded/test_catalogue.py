"""The catalogue is whole: every model has a hash, a licence, a source that is pinned."""

from __future__ import annotations

import re

import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._embedded.fetch import read_parts
from llmsim_lab.llm._embedded.store import CATALOGUE, CatalogueModel, find_model

every_model = pytest.mark.parametrize("model", CATALOGUE, ids=lambda model: model.name)


@every_model
def test_every_model_can_be_verified_and_has_a_licence(model: CatalogueModel) -> None:
    assert re.fullmatch("[0-9a-f]{64}", model.sha256)
    assert model.licence == "Apache-2.0"
    assert model.url.startswith("https://huggingface.co/")


@every_model
def test_every_models_packages_are_pinned_and_as_many_as_its_pieces(model: CatalogueModel) -> None:
    assert model.wheels is not None
    assert len(read_parts(model.wheels)) == -(-model.size_bytes // model.part_bytes)


def test_a_model_is_found_by_name() -> None:
    assert find_model("smollm2-135m").size_bytes == 98_362_432


def test_an_unknown_name_is_answered_with_the_names() -> None:
    with pytest.raises(ConfigError, match=r"no embedded model 'gpt'; there are qwen.*smollm2-135m"):
        find_model("gpt")
