from __future__ import annotations

from typing import Any

import pytest
from context_kit import build, make_module

from llmsim_lab.context import ComposedModules, GameEngine
from llmsim_lab.context import apply_deterministic_updates as apply_updates
from llmsim_lab.errors import ConfigError, ModuleError


def test_a_module_that_raises_is_named_with_agent_and_function() -> None:
    def build_agent_context(agent: str, own: Any, world: Any) -> str:
        return own["no_such"]  # type: ignore[no-any-return]

    with pytest.raises(ModuleError) as caught:
        build(make_module("trust", context=build_agent_context))
    error = caught.value
    assert (error.module, error.agent, error.function) == ("trust", "Ada", "build_agent_context")
    assert "module 'trust', build_agent_context, agent 'Ada': KeyError: 'no_such'" in str(error)
    assert "test_modules.py, line " in error.detail
    assert isinstance(error.__cause__, KeyError)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "it returned NoneType, not a dict; {} changes nothing"),
        ([("a", 1)], "it returned list, not a dict"),
    ],
)
def test_updates_must_be_a_dict(returned: Any, message: str) -> None:
    module = make_module(updates=lambda agent, own, world, step: returned)
    with pytest.raises(ModuleError, match=f"compute_state_updates, agent 'Ada': {message}"):
        module.call("compute_state_updates", "Ada", {}, {}, 1)


def test_a_module_changes_its_agents_only_and_what_it_cannot_is_refused() -> None:
    module = make_module(updates={"gold": "much", "silver": 1, "tax": 3})
    engine = GameEngine({"tax": 1}, {"Ada": {"gold": 1}})
    before = engine.get_current_state()
    records = apply_updates(ComposedModules([module]), engine, 1)
    assert [record.variable for record in records] == ["gold", "silver", "tax"]
    assert {record.status for record in records} == {"failed"}
    assert records[2].reason == "unknown variable; there are: gold"
    assert engine.get_current_state() == before


def test_a_module_sees_what_the_one_before_it_changed() -> None:
    seen: list[tuple[str, Any]] = []

    def earn(agent: str, own: Any, world: Any, step: int) -> dict[str, int]:
        return {"gold": own["gold"] + step}

    def double(agent: str, own: Any, world: Any, step: int) -> dict[str, int]:
        seen.append((agent, dict(own)))
        return {"gold": 2 * own["gold"]}

    engine = GameEngine({}, {"Ada": {"gold": 1}, "Bo": {"gold": 10}})
    modules = ComposedModules([make_module("a", updates=earn), make_module("b", updates=double)])
    records = apply_updates(modules, engine, 5)
    assert seen == [("Ada", {"gold": 6}), ("Bo", {"gold": 15})]
    assert [(it.column, it.before, it.after, it.source) for it in records] == [
        ("Ada.gold", 1, 6, "a"),
        ("Bo.gold", 10, 15, "a"),
        ("Ada.gold", 6, 12, "b"),
        ("Bo.gold", 15, 30, "b"),
    ]
    assert engine.get_current_state()["agent_vars"] == {"Ada": {"gold": 12}, "Bo": {"gold": 30}}


def test_modules_are_put_after_what_they_require() -> None:
    modules = [
        make_module("c", requires=["a", "b"]),
        make_module("b", requires=["a"]),
        make_module("a"),
        make_module("z"),
    ]
    assert [module.name for module in ComposedModules(modules)] == ["a", "b", "c", "z"]
    with pytest.raises(ConfigError, match="module 'c' requires 'b', which is not given"):
        ComposedModules([modules[0], modules[2]])
    with pytest.raises(ConfigError, match="module 'a' is given twice; name each once"):
        ComposedModules([make_module("z"), make_module("a"), make_module("a")])


@pytest.mark.parametrize(
    ("requires", "circle"),
    [({"a": ["b"], "b": ["a"]}, "a -> b -> a"), ({"a": ["a"], "b": []}, "a -> a")],
)
def test_a_circle_is_refused_and_shown(requires: dict[str, list[str]], circle: str) -> None:
    with pytest.raises(ConfigError, match=circle):
        ComposedModules(make_module(name, requires=needs) for name, needs in requires.items())
