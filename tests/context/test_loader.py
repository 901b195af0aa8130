from __future__ import annotations

from pathlib import Path

import pytest
from context_kit import write_module

from llmsim_lab.context import ModuleLoader
from llmsim_lab.errors import ConfigError

SAYS_HI = """
    def build_agent_context(agent_name, agent_state, global_state):
        return "Hi."
"""


@pytest.mark.parametrize("name", ["../outside", "deep/inside", "{}/outside", "here.yaml", "", ".."])
def test_no_name_leads_out_of_the_folders(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "modules"
    (inside / "deep").mkdir(parents=True)
    for folder, module in ((tmp_path, "outside"), (inside / "deep", "inside"), (inside, "here")):
        write_module(folder, module, "", SAYS_HI)
    with pytest.raises(ConfigError, match=r"there is no module .*; there are here"):
        ModuleLoader(inside).load([name.format(tmp_path)])


def test_a_digest_tells_modules_apart_by_data_and_by_code(tmp_path: Path) -> None:
    loader = ModuleLoader(tmp_path)
    digests = []
    for data, code in (
        ("title: M", SAYS_HI),
        ("{title: M}", SAYS_HI),
        ("title: N", SAYS_HI),
        ("title: M", SAYS_HI.replace("Hi", "Bye")),
    ):
        write_module(tmp_path, "mood", data, code)
        digests.append(loader.load(["mood"]).modules[0].digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\ny = x / 0\n", "mood.py, line 2)"),
        ("x = (\n", "the module's code does not load: SyntaxError"),
        ("x = 1\n", "the code defines neither build_agent_context nor compute_state_updates"),
    ],
)
def test_code_that_does_not_load_is_named_with_its_line(
    tmp_path: Path, code: str, message: str
) -> None:
    write_module(tmp_path, "mood", "", code)
    with pytest.raises(ConfigError) as caught:
        ModuleLoader(tmp_path).load(["mood"])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        ("code: evil.py\n", 1, "code: unknown key"),
        (
            "variables:\n  agent_vars:\n    gold:\n      type: choice\n      options: [true, no]\n",
            5,
            "options.0: Input should be a valid string (it is True)",
        ),
    ],
)
def test_a_fault_in_the_data_is_named_with_file_and_line(
    tmp_path: Path, data: str, line: int, message: str
) -> None:
    path = write_module(tmp_path, "mood", data)
    with pytest.raises(ConfigError) as caught:
        ModuleLoader(tmp_path).load(["mood"])
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert message in str(caught.value)


def test_a_module_in_two_folders_is_refused_and_one_in_none(tmp_path: Path) -> None:
    write_module(tmp_path, "agents_base")
    with pytest.raises(ConfigError, match=r"no module 'agent_base' in .*mean 'agents_base'"):
        ModuleLoader(tmp_path).load(["agent_base"])
    with pytest.raises(ConfigError, match="module 'agents_base' is there twice"):
        ModuleLoader(tmp_path, ModuleLoader.shipped).load(["agents_base"])
