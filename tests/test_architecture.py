"""The shape of the house, enforced: imports point down, the core is pure, time has one door, nothing runs text as code.

Each rule is a function from a module's source to complaints, and each is shown a bad source, so that a rule which has
stopped seeing anything fails here too.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALL = {
    "model",
    "dledger",
    "store",
    "remoting",
    "broker",
    "namesrv",
    "client",
    "spark_connector",
    "chaos",
    "cli",
    "bench",
    "tests",
}
MAY_IMPORT = {
    "model": set[str](),
    "dledger": {"model"},
    "store": {"model"},
    "remoting": {"model"},
    "broker": {"model", "dledger", "store", "remoting"},
    "namesrv": {"model", "remoting"},
    "client": {"model", "remoting"},
    "spark_connector": {"model", "store", "client"},
    "chaos": ALL,
    "cli": ALL,
    "bench": ALL,
    "tests": ALL,
}
IMPURE = {
    "asyncio",
    "time",
    "os",
    "io",
    "logging",
    "socket",
    "selectors",
    "threading",
    "multiprocessing",
    "subprocess",
    "concurrent",
    "datetime",
    "secrets",
    "uuid",
    "structlog",
    "pathlib",
    "mmap",
    "sys",
}
IMPURE_CALLS = {"open", "input", "id", "hash"}  # hash and id differ between processes: a core must not depend on them
CLOCK = "model/clock.py"
RUNS_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
RUNS_CODE_CALLS = {"eval", "exec", "__import__", "os.system", "os.popen"}
REAL_TIME_CALLS = {"now", "utcnow", "today"}
LINES_MAX = 400
LINES_MAX_OF = {  # a ratchet: rows may shrink or go, a new one needs a reason beside it
    "dledger/core.py": 670,  # one state machine; cutting it would scatter its transitions
    "broker/replica.py": 520,  # life, requests and turn of a node on one page
}

Rule = Callable[[str, str], Iterator[str]]


def imports(tree: ast.AST, path: str) -> Iterator[tuple[str, str]]:
    """(module, name) of every import, wherever in the module it stands; the name is empty for `import module`."""
    package = path.split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imports_point_down(path: str, source: str) -> Iterator[str]:
    package = path.split("/", maxsplit=1)[0]
    for module, _ in imports(ast.parse(source), path):
        target = module.split(".")[0]
        if target in ALL and target != package and target not in MAY_IMPORT[package]:
            yield f"{package} must not import {module}"


def the_core_is_pure(path: str, source: str) -> Iterator[str]:
    if not path.startswith("dledger/"):
        return
    tree = ast.parse(source)
    for module, name in imports(tree, path):
        if module.split(".")[0] in IMPURE:
            yield f"imports {module}"
        if module.split(".")[0] == "random" and name != "Random":
            yield "uses the global random; a Random is an argument (from random import Random)"
    for name, _ in calls(tree):
        if name in IMPURE_CALLS:
            yield f"calls {name}()"
        if name == "Random":
            yield "makes its own Random; it is an argument"


def time_has_one_door(path: str, source: str) -> Iterator[str]:
    if path == CLOCK:
        return
    tree = ast.parse(source)
    measures = path.startswith("bench/")
    for module, name in imports(tree, path):
        if module == "time" and not (measures and name in ("", "perf_counter", "perf_counter_ns", "process_time")):
            yield "imports time; take a model.clock.Clock as an argument"
    for name, _ in calls(tree):
        owner, _, method = name.rpartition(".")
        if owner.split(".")[-1] in ("datetime", "date") and method in REAL_TIME_CALLS:
            yield f"calls {name}(); take a model.clock.Clock as an argument"
        if name.startswith("time.") and not name.startswith(("time.perf_counter", "time.process_time")):
            yield f"calls {name}()"


def nothing_runs_text_as_code(path: str, source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for module, name in imports(tree, path):
        if module.split(".")[0] in RUNS_CODE:
            yield f"imports {module}"
        if f"{module}.{name}" in RUNS_CODE_CALLS:
            yield f"imports {module}.{name}"
    for name, call in calls(tree):
        if name in RUNS_CODE_CALLS or name.removeprefix("builtins.") in RUNS_CODE_CALLS:
            yield f"calls {name}()"
        if any(word.arg == "shell" for word in call.keywords):
            yield f"{name}(shell=...)"


def nobody_prints(path: str, source: str) -> Iterator[str]:
    yield from (f"line {call.lineno} prints" for name, call in calls(ast.parse(source)) if name == "print")


def a_module_says_what_it_is(path: str, source: str) -> Iterator[str]:
    if source.strip() and not ast.get_docstring(ast.parse(source)):
        yield "has no docstring"


def modules_stay_small(path: str, source: str) -> Iterator[str]:
    most = LINES_MAX_OF.get(path, LINES_MAX)
    lines = len(source.splitlines())
    if not path.startswith("tests/") and lines > most:
        yield f"has {lines} lines, more than {most}: split it where its docstring needs an 'and'"


RULES: list[Rule] = [
    imports_point_down,
    the_core_is_pure,
    time_has_one_door,
    nothing_runs_text_as_code,
    nobody_prints,
    a_module_says_what_it_is,
    modules_stay_small,
]


def modules() -> dict[str, str]:
    found = {}
    for package in sorted(ALL):
        for file in sorted((ROOT / package).rglob("*.py")):
            found[file.relative_to(ROOT).as_posix()] = file.read_text()
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    complaints = [f"{path}: {text}" for path, source in modules().items() for text in rule(path, source)]
    assert not complaints, "\n" + "\n".join(complaints)


def test_the_rules_look_at_every_package_that_exists() -> None:
    seen = {path.split("/")[0] for path in modules()}
    assert {"model", "dledger", "store", "broker", "tests"} <= seen
    assert {file.parent.name for file in ROOT.glob("*/__init__.py")} <= ALL, "a new package needs a row in MAY_IMPORT"


def test_the_ratchet_names_only_modules_that_need_it() -> None:
    sizes = {path: len(source.splitlines()) for path, source in modules().items()}
    assert all(path in sizes for path in LINES_MAX_OF)


BAD: list[tuple[Rule, str, str]] = [
    (imports_point_down, "model/x.py", "import store"),
    (imports_point_down, "model/x.py", "def f():\n    from broker.config import BrokerConfig"),
    (imports_point_down, "dledger/x.py", "from store.entry import pack"),
    (imports_point_down, "store/x.py", "import dledger.core"),
    (imports_point_down, "remoting/x.py", "import store"),
    (imports_point_down, "broker/x.py", "from chaos import sim"),
    (imports_point_down, "broker/state/x.py", "from cli import main"),
    (imports_point_down, "client/x.py", "import store"),
    (imports_point_down, "namesrv/x.py", "import broker"),
    (imports_point_down, "spark_connector/x.py", "import broker"),
    (imports_point_down, "store/x.py", "if TYPE_CHECKING:\n    import dledger"),
    *((the_core_is_pure, "dledger/x.py", f"import {module}") for module in sorted(IMPURE)),
    (the_core_is_pure, "dledger/x.py", "from os.path import join"),
    (the_core_is_pure, "dledger/x.py", "import random"),
    (the_core_is_pure, "dledger/x.py", "from random import randint"),
    (the_core_is_pure, "dledger/x.py", "from random import Random\nr = Random(1)"),
    (the_core_is_pure, "dledger/x.py", "open('f')"),
    (the_core_is_pure, "dledger/x.py", "h = hash('f')"),
    (time_has_one_door, "store/x.py", "import time"),
    (time_has_one_door, "tests/x.py", "from time import sleep"),
    (time_has_one_door, "bench/x.py", "from time import time"),
    (time_has_one_door, "bench/x.py", "import time\ntime.sleep(1)"),
    (time_has_one_door, "broker/x.py", "import datetime\ndatetime.datetime.now(datetime.UTC)"),
    (nothing_runs_text_as_code, "store/x.py", "import pickle"),
    (nothing_runs_text_as_code, "store/x.py", "from marshal import loads"),
    (nothing_runs_text_as_code, "store/x.py", "eval('1')"),
    (nothing_runs_text_as_code, "store/x.py", "exec('1')"),
    (nothing_runs_text_as_code, "chaos/x.py", "import subprocess\nsubprocess.run('ls', shell=True)"),
    (nothing_runs_text_as_code, "chaos/x.py", "from os import system"),
    (nothing_runs_text_as_code, "chaos/x.py", "import os\nos.system('ls')"),
    (nobody_prints, "cli/x.py", "def f():\n    print('hi')"),
    (a_module_says_what_it_is, "cli/x.py", "x = 1"),
    (modules_stay_small, "cli/x.py", "\n" * 401),
    (modules_stay_small, "dledger/core.py", "\n" * 701),
]

GOOD: list[tuple[Rule, str, str]] = [
    (imports_point_down, "broker/x.py", "import dledger, store, model, numpy"),
    (imports_point_down, "broker/state/x.py", "from . import topics\nfrom ..config import BrokerConfig"),
    (imports_point_down, "tests/x.py", "import broker, chaos, cli"),
    (the_core_is_pure, "dledger/x.py", "from random import Random\ndef f(r: Random): return r.random()"),
    (the_core_is_pure, "store/x.py", "import os"),
    (time_has_one_door, "model/clock.py", "import time\ntime.time_ns()"),
    (time_has_one_door, "bench/x.py", "from time import perf_counter\nperf_counter()"),
    (time_has_one_door, "store/x.py", "clock.now_ms()"),
    (nothing_runs_text_as_code, "chaos/x.py", "import subprocess\nsubprocess.run(['ls'])\npattern.exec()"),
    (nobody_prints, "cli/x.py", "console.print('hi')"),
    (a_module_says_what_it_is, "tests/__init__.py", ""),
    (modules_stay_small, "dledger/core.py", "\n" * 670),
    (modules_stay_small, "tests/x.py", "\n" * 900),
]


@pytest.mark.parametrize("rule, path, source", BAD)
def test_each_rule_sees_a_planted_breach(rule: Rule, path: str, source: str) -> None:
    assert list(rule(path, source))


@pytest.mark.parametrize("rule, path, source", GOOD)
def test_no_rule_cries_wolf(rule: Rule, path: str, source: str) -> None:
    assert list(rule(path, source)) == []
