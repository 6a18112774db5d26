"""A knob is declared once: default, bounds, unit, sentence, scope; loading, checking and the handbook follow from that.

    defaults  <  TOML  <  environment DLMQ_SECTION_NAME  <  command line section.name

Law: a configuration is a frozen dataclass handed down; nobody else reads a file or the environment. `load` reports
every mistake at once, with name, value and what is allowed. Knobs of scope "cluster" must be equal on all nodes: their
fingerprint is what peers compare. Does not know: which knobs exist.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, get_type_hints, runtime_checkable

from model.errors import ConfigError

Scope = Literal["local", "cluster"]
C = TypeVar("C")
ENV_PREFIX = "DLMQ_"
REQUIRED: Final[Any] = dataclasses.MISSING
TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@runtime_checkable
class Ruled(Protocol):
    """A configuration class with rules over several knobs: one sentence per broken rule."""

    def problems(self) -> list[str]: ...


class Knob(NamedTuple):
    """One row of the handbook."""

    name: str  # dotted: section.name
    type: Any
    default: Any  # REQUIRED when there is none
    doc: str
    unit: str
    minimum: float | None
    maximum: float | None
    pattern: str | None
    scope: Scope

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper().replace(".", "_")

    @property
    def allowed(self) -> str:
        """The permitted values, for people."""
        unit = f" {self.unit}" if self.unit else ""
        if self.pattern is not None:
            return f"text that matches {self.pattern}"
        if self.minimum is None and self.maximum is None:
            return TYPES[self.type].name
        if self.maximum is None:
            return f"{self.minimum} or more{unit}"
        if self.minimum is None:
            return f"at most {self.maximum}{unit}"
        return f"{self.minimum} to {self.maximum}{unit}"


def knob(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    pattern: str | None = None,
    scope: Scope = "local",
) -> Any:
    """A dataclass field that `load` understands. Without a default: pass REQUIRED (and make the class kw_only)."""
    about = {"doc": doc, "unit": unit, "minimum": minimum, "maximum": maximum, "pattern": pattern, "scope": scope}
    return dataclasses.field(default=default, metadata={"knob": about})


def describe(cls: type[Any], prefix: str = "") -> list[Knob]:
    """Every knob of a configuration class, sections included, in the order of declaration."""
    hints, rows = get_type_hints(cls), list[Knob]()
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            rows += describe(kind, f"{prefix}{field.name}.")
        else:
            assert kind in TYPES, f"{cls.__name__}.{field.name} has type {kind}, which no layer can spell"
            rows.append(Knob(prefix + field.name, kind, field.default, **field.metadata["knob"]))
    return rows


def load(cls: type[C], toml: Mapping[str, Any], env: Mapping[str, str], argv: Mapping[str, Any]) -> C:
    """The configuration these layers describe; ConfigError with every mistake otherwise.

    `argv` has dotted names; a value of None means that the option was not given.
    """
    knobs = {row.name: row for row in describe(cls)}
    problems: list[str] = []
    values: dict[str, Any] = {}
    bad: set[str] = set()
    for source, name, value in (*_from_toml(toml, knobs), *_from_env(env, knobs), *_from_argv(argv)):
        row = knobs.get(name)
        if row is None:
            problems.append(f"{source} is unknown{_nearest(name, knobs)}")
            continue
        try:
            values[name] = _admit(row, value)
            bad.discard(name)
        except ValueError:
            problems.append(f"{source} = {value!r} is not allowed: {row.allowed}")
            bad.add(name)
    for name, row in knobs.items():
        if row.default is REQUIRED and name not in values and name not in bad:
            problems.append(f"{name} is missing: {row.doc} ({row.allowed})")
            bad.add(name)
    config = _assemble(cls, "", values, bad, problems)
    if problems:
        raise ConfigError(problems)
    assert config is not None
    return config


def violations(config: Any) -> list[str]:
    """What `load` would say about a configuration that code has put together."""
    values = dict(_flat(config, ""))
    problems = []
    for row in describe(type(config)):
        try:
            _admit(row, values[row.name])
        except ValueError:
            problems.append(f"{row.name} = {values[row.name]!r} is not allowed: {row.allowed}")
    return problems + _broken_rules(config)


def fingerprint(config: Any) -> str:
    """One short text that is equal exactly when all cluster-wide knobs are equal."""
    shared = {row.name for row in describe(type(config)) if row.scope == "cluster"}
    text = json.dumps({name: value for name, value in _flat(config, "") if name in shared}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def handbook(cls: type[Any]) -> str:
    """docs/CONFIG.md."""
    lines = [
        "# Configuration",
        "",
        "Generated from the declarations; do not edit. Later layers win: defaults < TOML < environment < command line.",
        "A name `section.knob` is a key of the table `[section]` in TOML and `DLMQ_SECTION_KNOB` in the environment.",
        "Knobs of scope *cluster* must be equal on every node of a group; nodes compare a fingerprint of them.",
    ]
    section = ""
    for row in describe(cls):
        title = row.name.rpartition(".")[0]
        if title != section:
            section = title
            lines += ["", f"## [{title}]", ""]
            lines += ["| name | default | allowed | scope | meaning |", "|---|---|---|---|---|"]
        default = "(required)" if row.default is REQUIRED else f"`{_spell(row.default)}`"
        allowed = row.allowed.replace("|", "\\|")
        lines.append(f"| `{row.name}` | {default} | {allowed} | {row.scope} | {row.doc} |")
    return "\n".join(lines) + "\n"


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(list(value)) if isinstance(value, tuple) else str(value)


def _from_toml(table: Mapping[str, Any], knobs: Mapping[str, Knob], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, Mapping) and any(known.startswith(name + ".") for known in knobs):
            yield from _from_toml(value, knobs, name + ".")
        else:
            yield name, name, value


def _from_env(env: Mapping[str, str], knobs: Mapping[str, Knob]) -> Iterator[tuple[str, str, str]]:
    names = {row.env: name for name, row in knobs.items()}
    for variable, value in env.items():
        if variable.startswith(ENV_PREFIX):
            # An underscore may part words or sections, so an unknown name is passed on as it might have been meant.
            guess = variable.removeprefix(ENV_PREFIX).lower().replace("_", ".", 1)
            yield variable, names.get(variable, guess), value


def _from_argv(argv: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for name, value in argv.items():
        if value is not None:
            yield f"option {name}", name, value


def _nearest(name: str, knobs: Mapping[str, Knob]) -> str:
    near = difflib.get_close_matches(name, knobs, n=1)
    if not near:  # the right knob in the wrong section
        last = {known.rpartition(".")[2]: known for known in knobs}
        near = [last[key] for key in difflib.get_close_matches(name.rpartition(".")[2], last, n=1)]
    return f"; did you mean {near[0]}?" if near else ""


def _admit(row: Knob, value: Any) -> Any:
    """The value as the knob's type and within its bounds, or ValueError."""
    admitted = TYPES[row.type].read(value)
    if row.minimum is not None and admitted < row.minimum:
        raise ValueError
    if row.maximum is not None and admitted > row.maximum:
        raise ValueError
    if row.pattern is not None:
        for text in admitted if isinstance(admitted, tuple) else (admitted,):
            if re.fullmatch(row.pattern, text) is None:
                raise ValueError
    return admitted


def _assemble(cls: type[C], prefix: str, values: Mapping[str, Any], bad: set[str], problems: list[str]) -> C | None:
    """Build bottom-up; rules over several knobs are asked only where each knob by itself is fine."""
    parts: dict[str, Any] = {}
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            parts[field.name] = _assemble(hints[field.name], name + ".", values, bad, problems)
        elif name in values:
            parts[field.name] = values[name]
    if any(name.startswith(prefix) for name in bad) or any(part is None for part in parts.values()):
        return None
    config = cls(**parts)
    if isinstance(config, Ruled):
        problems += config.problems()
    return config


def _broken_rules(config: Any) -> list[str]:
    problems: list[str] = []
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            problems += _broken_rules(part)
    return problems + config.problems() if isinstance(config, Ruled) else problems


def _flat(config: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _flat(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def _read_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in TRUTH:
        raise ValueError
    return TRUTH[value.lower()]


def _read_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _read_names(value: Any) -> tuple[str, ...]:
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item for item in items):
        raise ValueError
    return tuple(items)


class _Type(NamedTuple):
    name: str
    read: Callable[[Any], Any]


TYPES: Final[Mapping[Any, _Type]] = {
    int: _Type("a whole number", _read_int),
    float: _Type("a number", _read_float),
    bool: _Type("true or false", _read_bool),
    str: _Type("text", _read_str),
    tuple[str, ...]: _Type("a list of texts (with commas between them outside TOML)", _read_names),
}
