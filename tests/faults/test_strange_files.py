"""Configurations, worlds, studies, scenarios, prompts and weights of somebody else."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults_kit import TESTS, Attack, Case, Plan, Step, serving
from verbs_kit import command
from wire_kit import FAULTS, answer_all_with

from llmsim_lab.assistant import load_constitution
from llmsim_lab.errors import LabError, ModelFileError
from llmsim_lab.lessons.answers import AnswerKey
from llmsim_lab.llm.embedded import weights
from llmsim_lab.prompts import Prompt
from llmsim_lab.room import Room
from llmsim_lab.simulation import Simulation
from llmsim_lab.study.registration import read_registration

pytestmark = pytest.mark.process

# --- YAML -----------------------------------------------------------------------------------------

ALIASES = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]\n" for at in range(1, 9)
)
CRISIS = "kind: crisis\ntitle: t\ntime_step_duration: 1 week\nagents: {A: {role: r}}\n"
GUARD = (
    """chart: {states: [a, b], transitions: [{trigger: x, source: a, target: b, guard: '%s'}]}"""
)
CALLS = '__import__("os").system("touch RAN")'
CROWD = ", ".join(f"P{at}: {{a: 1}}" for at in range(20_000))
BOMB = "{% for a in range(9999) %}" * 3 + "x" + "{% endfor %}" * 3
NUMBERS = (
    "9" * 5000,
    "0x" + "f" * 200_000,
    "0b" + "1" * 200_000,
    "0o" + "7" * 200_000,
    "1:" + "59:" * 20_000 + "59",
    "1e99999",
    ".inf",
    ".nan",
    "1_" * 100_000 + "1",
    "+" + "9" * 900,
    "-0x" + "f" * 900,
    "1000000000000",
    "1e12",
)
PEOPLE = {
    "a column": "{rows: {A: {__class__: 1}}}",
    "no column": "{rows: {A: {}}}",
    "half a template": "{rows: {A: {age: 3}}, words: '{{ age'}",
    "a bomb": f"{{rows: {{A: {{age: 3}}}}, words: '{BOMB}'}}",
    "a digit too many": f"{{rows: {{A: {{age: {'9' * 5_000}}}}}}}",
    "20,000 of them": f"{{rows: {{{CROWD}}}}}",
    "wrong margins": "{rows: {A: {age: 3}}, wanted: {age: {x: .nan}}}",
    "a list": "[1, 2]",
    "a path": "/etc/passwd",
}
YAML: dict[str, str | bytes] = {
    "50,000 keys": "".join(f"k{at}: 1\n" for at in range(50_000)),
    "5,000 keys": "".join(f"k{at}: 1\n" for at in range(5_000)),
    "an alias of itself": "name: &a [*a]\n",
    "a merge": "a: &a {b: 1}\n<<: [*a, *a]\nname: x\n",
    "a date": "name: 2026-11-28\n",
    "no date": "name: 9999-99-99\n",
    "binary": f"name: !!binary {'A' * 100_000}\n",
    "a call": "name: !!python/object/apply:os.system ['touch RAN']\n",
    "an object": "!!python/object/new:os.system ['touch RAN']\n",
    "a module": "name: !<tag:yaml.org,2002:python/module:evil> x\n",
    "a set": "players: !!set {a, b}\n",
    "a long type": f"name: !{'x' * 10**6} y\n",
    "a character beyond all": 'name: "\\UFFFFFFFF"\n',
    "words alone": f"name: {'x ' * 500_000}\n",
    "line ends alone": "name: x\n" + "\n" * 10**6,
    "deep": f"name: {'[' * 5000}{']' * 5000}\n",
    "deep lines": "name:\n" + "".join(f"{' ' * at}a:\n" for at in range(1, 1_500)),
    "a long key": f"? {'k' * 100_000}\n: 1\n",
    "NUL": "name: a\0b\n",
    "UTF-16": "\ufeffname: x\n".encode("utf-16"),
    "Latin": b"name: \xff\n",
    "two documents": "name: a\n---\nname: b\n",
    "an anchor twice": "a: &x 1\nb: &x 2\n",
    "anchors": "".join(f"k{at}: &a{at} x\n" for at in range(20_000)),
    "not closed": f'name: "{"a" * 100_000}',
    "a long comment": f"{'#' * 10**6}\nname: x\n",
    "percent": "%YAML 9.9\n---\nname: x\n",
    "a list": "- a\n",
    "nothing": "",
    "a prompt's path": "nations: [{name: A, prompt: ../../../../etc/passwd}]\n",
    "a wide window": "llm: {model: x, options: {num_ctx: 999999999999999999999}}\n",
    "weights": "llm: {model: 'embedded:/etc/passwd'}\n",
    "20,000 nations": f"nations: [{', '.join(f'N{at}' for at in range(20_000))}]\n",
    "huge moves": f"moves_bp: [-1{'0' * 900}, 0]\n",
    "40,000 moves": f"moves_bp: {[*range(-20_000, 20_000)]}\n",
    "a population": "kind: social\npopulation: 1000000000\n",
    # The most that a number may ask for, just as a turn of it may take.
    "10,000 users": "kind: social\npopulation: 10000\n",
    "10,000 users by chance": "kind: social\npopulation: 10000\nplayers: random\n",
    "4,000 topics": "kind: social\npopulation: ["
    + ", ".join(f"{{name: U{at}, interests: [t{at}, s{at}]}}" for at in range(2_000))
    + "]\nseed_posts: ["
    + ", ".join(f"{{author: x, text: y, topics: [t{at}, s{at}]}}" for at in range(1_000))
    + "]\n",
    "a population below": "kind: social\npopulation: {size: 1000000000}\n",
    "seed posts": "kind: social\npopulation: 12\nseed_posts: 1000000000\n",
    "a guard": f"kind: social\n{GUARD % CALLS}\n",
    "a scenario's modules": f"{CRISIS}modules: [evil, ../evil, /etc/passwd]\n",
    "a scenario's folder": f"{CRISIS}modules: [evil]\nmodule_folders: [.]\n",
    "20,000 agents": CRISIS.replace(
        "A: {role: r}", ", ".join(f"A{at}: {{role: r}}" for at in range(20_000))
    ),
    "20,000 variables": f"{CRISIS}variables: {{global_vars: {{%s}}}}\n"
    % ", ".join(f"v{at}: {{type: percent}}" for at in range(20_000)),
    "a variable's name": f"{CRISIS}global_vars: {{__class__: 1, 'a.b': 2}}\n",
    "50,000 events": CRISIS + "events: [" + ", ".join(["{description: x}"] * 50_000) + "]\n",
    "a braced role": CRISIS.replace("role: r", "role: '{{ self.__class__ }} {% include x %}'"),
    "50,000 interventions": "interventions: ["
    + ", ".join(["{turn: 1, set: {inflation: 1}}"] * 50_000)
    + "]\n",
}
for _key in ("name", "players", "llm", "turns"):
    YAML[f"aliases: {_key}"] = f"{ALIASES}{_key}: *a8\n"
for _number in NUMBERS:
    YAML[f"a number: {_number[:5]}"] = f"turns: {_number}\n"
for _kind in ("os:system", "evil.py:X", "evil:X", "evil"):
    YAML[f"kind {_kind}"] = f"kind: {_kind}\n"
for _name, _people in PEOPLE.items():
    YAML[f"people: {_name}"] = f"nations: [A]\npopulation: {_people}\n"
RUN = ("--turns", "0", "--model", "rule", "--out", "out")


def write_yaml(content: str | bytes, folder: Path) -> None:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    (folder / "x.yaml").write_bytes(raw)
    put_evil_beside(folder)


def put_evil_beside(folder: Path) -> None:
    """Put files that write ``RAN`` when somebody imports or unpickles them."""
    code = "from pathlib import Path\nPath(__file__).with_name('RAN').touch()\n"
    for name in (
        "evil",
        "numpy",
        "yaml",
        "crisis",
        "sitecustomize",
        "conftest",
        "pot",
        "social",
        "json",
        "random",
        "pip",
        "jupyterlab",
        "ipykernel_launcher",
        "multiprocessing",
    ):
        (folder / f"{name}.py").write_text(code)
    for name in ("x", "study", "spec", "class", "world"):
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(Evil(str(folder / "RAN"))))
    (folder / "evil.yaml").write_text("title: e\n")


class Evil:
    """Touches a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def quietly(*arguments: str) -> Callable[[Path], None]:
    """Return a step that runs a command, by which nothing beside it is run."""

    def step(folder: Path) -> None:
        printed = command(*arguments)
        assert not (folder / "RAN").exists(), "code of a stranger's ran"
        assert len(printed) < 200_000, len(printed)

    return step


def configurations(plan: Plan) -> Iterator[Case]:
    steps = {"lint": quietly("lint", "x.yaml"), "run": quietly("run", "x.yaml", *RUN)}
    for name, content in plan.chosen(YAML, 6, 24):
        yield Case(name, steps, partial(write_yaml, content))


def test_a_strangers_yaml_is_a_run_or_an_error(attack: Attack) -> None:
    attack("files: YAML", configurations)


def changed_text(seed: str, folder: Path) -> None:
    """Write a configuration of ours with some of its words exchanged, removed, repeated."""
    source = random.Random(seed)
    path = source.choice(sorted((TESTS.parent / "data").glob("s*/*.yaml")))
    words = path.read_text().split(" ")
    for _ in range(source.choice([1, 2, 5, 20])):
        place = source.randrange(len(words))
        odd = [
            "",
            "null",
            "-1",
            "1e999",
            "[",
            "{a: b}",
            "'",
            "\n",
            "!!set",
            "true",
            "1.5",
            "x" * 9999,
        ]
        words[place : place + 1] = source.choice([[], [words[place]] * 2, [source.choice(odd)]])
    (folder / "x.yaml").write_text(" ".join(words))
    put_evil_beside(folder)


def changed_configurations(plan: Plan) -> Iterator[Case]:
    steps = {
        "lint": quietly("lint", "x.yaml"),
        "run": quietly("run", "x.yaml", *RUN),
        "study": quietly("study", "x.yaml", "status"),
    }
    for number in range(plan.times(5)):
        seed = f"{plan.seed} {number}"
        yield Case(f"change {seed}", steps, partial(changed_text, seed))


def test_a_changed_configuration_is_a_run_or_an_error(attack: Attack) -> None:
    attack("files: changed YAML", changed_configurations)


# --- what is not a text ---------------------------------------------------------------------------


def made_odd(folder: Path) -> None:
    """Make files that have no end, or that nobody writes to."""
    os.mkfifo(folder / "pipe")
    (folder / "endless").symlink_to("/dev/zero")
    with (folder / "large").open("wb") as file:
        file.truncate(2**32)


def configuration(path: Path) -> None:
    raise LabError(command("lint", path))


READERS: dict[str, Callable[[Path], object]] = {
    "a configuration": configuration,
    "a prompt": Prompt.load,
    "a constitution": load_constitution,
    "a welcome": lambda path: Room(Simulation(players="person"), welcome=path),
    "a registration": read_registration,
    "a key": AnswerKey.read,
}


def is_refused(read: Callable[[Path], object], name: str, folder: Path) -> None:
    with pytest.raises(LabError, match=r"it is a (device|pipe)|has more than|is not the key"):
        read(folder / name)


def odd_files(_: Plan) -> Iterator[Case]:
    for reader, read in READERS.items():
        names = ("pipe", "endless", "large")
        steps: dict[str, Step] = {name: partial(is_refused, read, name) for name in names}
        yield Case(reader, steps, made_odd)


def test_what_is_not_a_text_is_neither_waited_for_nor_read_whole(attack: Attack) -> None:
    attack("files: pipes and devices", odd_files)


# --- code and pickles beside ----------------------------------------------------------------------

PLAYED = "fixed: {players: rule}\nseeds: 2\nturns: 1\n"
LEVELS = ", ".join(str(at / 100) for at in range(100))
OUTCOMES = ", ".join(f"o{at}: inflation" for at in range(10_000))
CODE_OF_OTHERS = {
    "a world beside": "world: pot.py:X\n",
    "a world elsewhere": "world: ../here/pot.py:X\n",
}
"""Studies that name a Python file, which ``run`` runs, as it is named; the others must not."""
FOLDER_NAMES = {
    "NUL": '"a\\0b"',
    "half a character": '"a\\ud800b"',
    "300 letters": "n" * 300,
    "10,000 folders": "n/" * 10_000,
}
STUDIES = {
    "a module": "world: evil:X\n",
    "an entry": "world: evil\n",
    "aliases": f"{ALIASES}world: economic\nvary: {{a: *a8}}\n",
    "many seeds": "world: economic\nseeds: 100000000000\nturns: 1\n",
    "100,000 runs": f"world: economic\n{PLAYED.replace('seeds: 2', 'seeds: 1000')}"
    f"vary: {{gap_noise: [{LEVELS}]}}\n",
    "10,000 outcomes": f"world: economic\n{PLAYED}outcome: {{{OUTCOMES}}}\n",
    "many arms": f"world: economic\n{PLAYED}vary: {{"
    + ", ".join(f"f{at}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for at in range(12))
    + "}\n",
    "an outcome of code": f"world: economic\noutcome: '{CALLS}'\n{PLAYED}",
    "an outcome's words": "world: economic\noutcome: {a: 'inflation@last; import os'}\n",
    "a folder of another's": f"world: economic\ntape: .\n{PLAYED}",
    "a file for a folder": f"world: economic\ntape: mine.txt\n{PLAYED}",
    "a plan of another's": f"world: economic\nregistration: mine.txt\n{PLAYED}",
    "long names": f"world: economic\nstudy: '{'../' * 50}x'\n{PLAYED}",
}
for _name, _folder in FOLDER_NAMES.items():
    STUDIES[f"a folder's name: {_name}"] = f"world: economic\ntape: {_folder}\n{PLAYED}"


def write_study(content: str, folder: Path) -> None:
    """Write a study, with a folder as if it had been begun, so that ``status`` looks at it."""
    write_yaml(content, folder)
    (folder / "x").mkdir()
    put_evil_beside(folder / "x")


def studies(plan: Plan) -> Iterator[Case]:
    looked_at = {action: quietly("study", "x.yaml", action) for action in ("status", "report")}
    played = {**looked_at, "run": quietly("study", "x.yaml", "run")}
    for name, content in plan.chosen(CODE_OF_OTHERS, 1):
        yield Case(name, looked_at, partial(write_study, content))
    for name, content in plan.chosen(STUDIES, 4):
        yield Case(name, played, partial(write_study, content))


def test_a_strangers_study_runs_no_code_that_is_not_named(attack: Attack) -> None:
    attack("files: studies", studies)


DILEMMA = TESTS.parent / "data/templates/prisoners_dilemma.py"
COMMANDS: dict[str, tuple[str, ...]] = {
    "tape ls": ("tape", "ls", "x.tape"),
    "tape show": ("tape", "show", "x.tape"),
    "tape verify": ("tape", "verify", "x.tape", "--replay"),
    "replay": ("replay", "x.tape", "--out", "out"),
    "view": ("view", "x.tape", "-o", "x.html"),
    "lint": ("lint", "x.yaml"),
    "doctor": ("doctor", "--install"),
    "tournament": ("tournament", "players", "--world", str(DILEMMA), "--rounds", "2"),
}


def in_a_program(arguments: tuple[str, ...], folder: Path) -> None:
    """Run a command as users do, in a folder of a stranger's."""
    program = Path(sys.executable).with_name("llmsim-lab")
    subprocess.run([program, *arguments], capture_output=True, check=False, timeout=200)
    assert not (folder / "RAN").exists(), "code of a stranger's ran"


def named_code_runs(folder: Path) -> None:
    """Show that the files beside would be noticed."""
    assert "pot.py has no world" in command("lint", "pot.py")
    assert (folder / "RAN").exists()


def programs(plan: Plan) -> Iterator[Case]:
    def write(folder: Path) -> None:
        write_yaml("kind: evil.py:X\n", folder)
        shutil.copy(TESTS.parent / "data/tapes/first_run.tape", folder / "x.tape")
        (folder / "players").mkdir()
        for name in ("ann", "bob"):
            (folder / "players" / f"{name}.py").write_text("def play(question):\n    return 'C'\n")

    for name, arguments in plan.chosen(COMMANDS, 1):
        yield Case(name, {"in a program": partial(in_a_program, arguments)}, write, wall_s=240)
    yield Case("what is named", {"lint": named_code_runs}, write)


def test_commands_in_a_strangers_folder_run_nothing_of_it(attack: Attack) -> None:
    attack("files: code beside", programs)


# --- prompts --------------------------------------------------------------------------------------


def prompts(plan: Plan) -> Iterator[Case]:
    # Here, since it makes 22 MB of templates, which the other classes' cases would have too.
    from bombs_kit import BOMBS, bomb_values, filled

    values = bomb_values()
    for name, text in plan.chosen(BOMBS, 12, 90):
        yield Case(name[:60], {"render": lambda _, text=text: filled(text, values)})
    for text, _ in plan.chosen(dict.fromkeys(ESCAPES), 8):
        yield Case(text, {"render": partial(kept_in, text)})


class Secretive:
    """An object with what no prompt may show."""

    _secret = "SECRET"

    def method(self) -> str:
        return "METHOD"


ESCAPES = (
    "{{ x.__class__ }}",
    "{{ x['__class__'] }}",
    "{{ x['__cla' ~ 'ss__'] }}",
    "{{ m._secret }}",
    "{{ m['_secret'] }}",
    "{{ m.method }}",
    "{{ m.method() }}",
    "{{ m }}",
    "{{ x|attr('__class__') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ m.__init__.__globals__ }}",
    "{{ x|map(attribute='__class__')|list }}",
    "{{ x|groupby('__class__') }}",
    "{{ self }}",
    "{{ loop }}",
    "{{ cycler('a') }}",
    "{{ joiner() }}",
    "{{ lipsum(n=10**9) }}",
    "{{ dict(a=1) }}",
    "{% set ns = namespace(a=1) %}{{ ns.a }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as o %}",
    "{% from 'os' import system %}",
    "{% extends '/etc/passwd' %}",
    "{% call x() %}{% endcall %}",
    "{% debug %}",
    "{{ '{0.__class__}'.format(m) }}",
    "{{ '%99999999d' % 1 }}",
    "{{ x|center(10**9) }}",
    "{{ x|indent(10**9) }}",
    "{{ x|batch(10**9)|list }}",
    "{{ x|tojson }}",
    "{{ x|pprint }}",
    "{{ x|xmlattr }}",
    "{{ x|sum(start=x) }}",
    "{{ 5|round(-99999999) }}",
    "{{ 1e308|round(-400) }}",
    "{{ x.\uff3f\uff3fclass\uff3f\uff3f }}",
    "{{ \uff53\uff45\uff4c\uff46 }}",
    "{{ x(*y) }}",
    "\ud800 {{ x }}",
    "{{ m.__dict__ }}",
    "{{ m.__reduce__() }}",
    "{{ run }}",
    "{{ caller() }}",
    "{{ super() }}",
)


def kept_in(text: str, _: Path) -> None:
    values = {"x": ["a", "b"], "y": {"x": 1}, "m": Secretive()}
    prompt = Prompt(text)
    shown = str(prompt.render(**{slot: values.get(slot, "abc") for slot in prompt.slots}))
    for word in ("SECRET", "METHOD", "<class", "bound method", "<function", "root:"):
        assert word not in shown, shown[:200]


def test_a_strangers_prompt_ends_and_sees_only_what_it_is_given(attack: Attack) -> None:
    attack("files: prompts", prompts)


# --- weights --------------------------------------------------------------------------------------

WEIGHTS = b"GGUF" + bytes(range(256)) * 40
MODEL = replace(
    weights.CATALOGUE[-1],
    name="tiny",
    size_bytes=len(WEIGHTS),
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    file_name="tiny.gguf",
)


def _work_is_a_link(path: Path, mine: Path) -> None:
    elsewhere = mine.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "copy").symlink_to(mine)
    path.with_name("tiny.gguf.tmp").symlink_to(elsewhere)


def _copy_is_a_link(path: Path, mine: Path) -> None:
    path.with_name("tiny.gguf.tmp").mkdir()
    (path.with_name("tiny.gguf.tmp") / "copy").symlink_to(mine)


def _copy_is_a_hard_link(path: Path, mine: Path) -> None:
    path.with_name("tiny.gguf.tmp").mkdir()
    os.link(mine, path.with_name("tiny.gguf.tmp") / "copy")


def _too_large_to_read(path: Path, _: Path) -> None:
    path.touch()
    os.truncate(path, 10**11)


def _nothing_to_read(path: Path, _: Path) -> None:
    path.write_bytes(WEIGHTS)
    path.chmod(0)


PLACES: dict[str, Callable[[Path, Path], object]] = {
    "a link to a user's file": lambda path, mine: path.symlink_to(mine),
    "a link to nothing": lambda path, mine: path.symlink_to(mine.with_name("nothing")),
    "a hard link": lambda path, mine: os.link(mine, path),
    "a fifo": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: path.mkdir(),
    "a device": lambda path, _: path.symlink_to("/dev/zero"),
    "other bytes": lambda path, _: path.write_bytes(WEIGHTS[:-1] + b"x"),
    "half": lambda path, _: path.write_bytes(WEIGHTS[:5000]),
    "100 GB": _too_large_to_read,
    "nothing to read": _nothing_to_read,
    "the work's folder is a link": _work_is_a_link,
    "the work's folder is a pipe": lambda path, _: os.mkfifo(path.with_name("tiny.gguf.tmp")),
    "the copy is a link": _copy_is_a_link,
    "the copy is a hard link": _copy_is_a_hard_link,
    "the lock is a link": lambda path, mine: path.with_name("tiny.gguf.lock").symlink_to(mine),
}
"""What is put in the place of a model's file, or beside it, where a user's file is."""


def placed(what: str, folder: Path) -> Path:
    os.environ["LLMSIM_MODELS"] = str(folder / "models")
    path = folder / "models" / "tiny.gguf"
    path.parent.mkdir()
    PLACES[what](path, folder / "mine.txt")
    return path


def take_weights(what: str, folder: Path) -> None:
    path = placed(what, folder)
    (folder / "right.gguf").write_bytes(WEIGHTS)
    assert weights.get_model(MODEL, file=folder / "right.gguf") == path
    assert path.read_bytes() == WEIGHTS


def check_weights(what: str, folder: Path) -> None:
    path = placed(what, folder)
    if what == "nothing to read" and os.geteuid() == 0:  # which reads all the same
        return
    with pytest.raises(ModelFileError):
        weights.checked(path, MODEL)


def fetch_weights(fault: str, folder: Path) -> None:
    """Fetch them from a server that sends what none should."""
    os.environ |= {"LLMSIM_MODELS": str(folder), "PIP_NO_INDEX": "1"}
    with serving(partial(answer_all_with, fault)) as port:
        os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{port}"
        with pytest.raises(ModelFileError):
            weights.get_model(MODEL)
    kept = sum(path.stat().st_size for path in folder.rglob("*"))
    assert kept < 100_000


def files_of_weights(plan: Plan) -> Iterator[Case]:
    for fault, _ in plan.chosen(FAULTS, 1, 5):
        yield Case(fault, {"fetch": partial(fetch_weights, fault)}, wall_s=60)
    for what, _ in plan.chosen(PLACES, 6):
        yield Case(what, {"get": partial(take_weights, what)}, wall_s=20)
        yield Case(what, {"check": partial(check_weights, what)}, wall_s=20)


def test_weights_are_the_right_bytes_or_an_error(attack: Attack) -> None:
    attack("files: weights", files_of_weights)
