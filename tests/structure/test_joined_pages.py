"""The modules of a page are joined into one script, in which no two may use one name."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from page_kit import script_of_room

from llmsim_lab.run.page import module

DECLARED = re.compile(r"^(?:const|let|(?:async )?function|class) (\w+)", re.MULTILINE)


def names_in(script: str) -> list[str]:
    return [name for name, count in Counter(DECLARED.findall(script)).items() if count > 1]


@pytest.mark.parametrize("page", ["guest", "teacher", "projector"])
def test_the_modules_of_a_room_page_have_no_name_in_common(page: str) -> None:
    assert names_in(script_of_room(page)) == []


def test_the_modules_of_the_window_have_no_name_in_common() -> None:
    assert names_in(module()) == []
