from __future__ import annotations

import traceback
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from llmsim_lab._util.config import Settings, YamlFile, read_config, yaml_text, yaml_value
from llmsim_lab.errors import ConfigError


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Square(Closed):
    type: Literal["square"]
    side: float


class Circle(Closed):
    type: Literal["circle"]
    radius: float


class Drawing(Closed):
    size: int = 1
    main: Square | None = None
    shapes: dict[str, Annotated[Square | Circle, Field(discriminator="type")]] = Field(
        default_factory=dict
    )
    row: list[Square] = Field(default_factory=list)
    short: Square | None = Field(default=None, alias="s")


def write(folder: Path, text: str) -> Path:
    path = folder / "drawing.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_becomes_an_instance(tmp_path: Path) -> None:
    path = write(tmp_path, "size: 3\nshapes:\n  a: {type: circle, radius: 2}\n")
    drawing = read_config(path, Drawing)
    assert (drawing.size, drawing.shapes["a"].type) == (3, "circle")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("size: big\n", "line 1: size: Input should be a valid integer"),
        ("\nsizes: 3\n", "line 2: sizes: unknown key; known here are main, row, s, shapes"),
        ("main:\n  type: square\n", "line 1: main.side: Field required"),
        ("main: {type: square, side: 1, hue: 2}\n", "main.hue: unknown key"),
        ("shapes:\n  a: {type: circle, radius: 1, side: 1}\n", "line 2: shapes.a.circle.side: unk"),
        ("row:\n  - {type: square, side: 1}\n  - {type: square, side: x}\n", "line 3: row.1.side"),
        ("? [1, 2]\n: 3\n", "line 1: (1, 2): Keys should be strings"),
    ],
)
def test_a_fault_is_named_with_file_line_and_key(tmp_path: Path, text: str, fault: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_config(path, Drawing)
    assert str(path) in str(caught.value)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n- 2\n", "must hold keys and values, such as 'size: 3', not list"),
        ("a: [1\n", "is not valid YAML"),
        ("a: 1\na: 2\n", 'line 2, column 1: found duplicate key "a"'),
        ("a: " + "[" * 400, "is not valid YAML: maximum recursion depth"),
        ("a: !!python/object/apply:os.getcwd []\n", "is not valid YAML"),
        (f"a: {'9' * 20_000}", "the number 9+… has 20,000 digits; give one of at most"),
        ("a:\n" + "-\n" * 500, "is not valid YAML: it has more than 500 keys and values"),
        ("#" * 1_048_577, "it has more than 1.05 MB; name a YAML file"),
        (f"a: !{'x' * 20_000} b", "the type !x+… has 200 letters or more"),
        ('a: "\\UFFFFFFFF"', "is not valid YAML: Python int too large"),
    ],
)
def test_what_is_not_keys_and_values_is_refused(
    tmp_path: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmsim_lab._util.config._MOST_VALUES", 500)  # 50,000 take seconds
    with pytest.raises(ConfigError, match=message):
        YamlFile.read(write(tmp_path, text), example="size: 3")


@pytest.mark.parametrize("text", ["{key}: 1\n{key}: 2\n", "{key}: 1\n", "row: [{bad}]\n"])
def test_long_keys_and_many_faults_make_a_short_message(tmp_path: Path, text: str) -> None:
    text = text.format(key=f"? {'k' * 10_000}\n", bad=", ".join(["{type: square}"] * 200))
    with pytest.raises(ConfigError) as caught:
        read_config(write(tmp_path, text), Drawing)
    assert len(str(caught.value)) < 5_000


@pytest.mark.parametrize("end", ["size: *a", "main: {<<: *a}", "row: &row [*row]"])
def test_aliases_which_can_stand_for_gigabytes_are_refused(tmp_path: Path, end: str) -> None:
    with pytest.raises(ConfigError, match=r"aliases, such as \*name, are not read; write out"):
        read_config(write(tmp_path, f"a: &a {{size: 3}}\n{end}\n"), Drawing)


@pytest.mark.parametrize("number", ["9" * 5_000, "0x" + "f" * 9_000, "0b" + "1" * 9_000])
def test_a_number_of_thousands_of_digits_is_refused(tmp_path: Path, number: str) -> None:
    with pytest.raises(ConfigError, match=r"line 2: the number .* digits; give one of at most"):
        read_config(write(tmp_path, f"main: {{}}\nsize: {number}\n"), Drawing)


def test_what_is_written_twice_comes_back_without_aliases() -> None:
    twice = {"a": 2, "b": "2 * 3"}
    assert yaml_value(yaml_text({"x": twice, "y": twice})) == {"x": twice, "y": twice}


def test_settings_with_a_huge_value_name_its_beginning() -> None:
    class Small(Settings):
        size: int = Field(default=1, le=9)

    nested: list[Any] = ["x"]
    for _ in range(9):
        nested = [nested] * 10
    with pytest.raises(
        ConfigError, match=r"Small: size: .* \(it is \[\[\[\[\.\.\.\], \["
    ) as caught:
        Small(size=nested)
    assert len("".join(traceback.format_exception(caught.value))) < 3_000


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        YamlFile.read(tmp_path / "no_such.yaml")
