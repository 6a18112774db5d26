"""Loading: layers, types, and every mistake in one report."""

from dataclasses import dataclass, field

import pytest

from model import config
from model.config import REQUIRED, knob
from model.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Tank:
    litres: int = knob(10, "How much it holds.", unit="litres", minimum=1, maximum=100, scope="cluster")
    level: float = knob(0.5, "How full it is.", minimum=0, maximum=1)
    open_top: bool = knob(False, "Whether rain gets in.")
    labels: tuple[str, ...] = knob((), "What is written on it.", pattern="[a-z]+")

    def problems(self) -> list[str]:
        return ["an open tank of more than 50 litres breeds mosquitoes"] if self.open_top and self.litres > 50 else []


@dataclass(frozen=True, kw_only=True)
class Garden:
    name: str = knob(REQUIRED, "What people call it.", pattern="[a-z]+", scope="cluster")
    tank: Tank = field(default_factory=Tank)


def mistakes(toml=None, env=None, argv=None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.load(Garden, {"name": "eden"} if toml is None else toml, env or {}, argv or {})
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    assert caught.value.exit_code == 2
    return list(caught.value.problems)


def test_later_layers_win() -> None:
    toml = {"name": "eden", "tank": {"litres": 20, "level": 1, "labels": ["a", "b"]}}
    env = {"DLMQ_TANK_LITRES": "30", "DLMQ_TANK_OPEN_TOP": "yes", "HOME": "/"}
    loaded = config.load(Garden, toml, env, {"tank.litres": 40, "tank.labels": "x, y", "tank.level": None})
    assert loaded == Garden(name="eden", tank=Tank(litres=40, level=1.0, open_top=True, labels=("x", "y")))
    assert config.load(Garden, {"name": "eden"}, {}, {}) == Garden(name="eden")


def test_three_mistakes_are_reported_at_once_with_name_value_and_range() -> None:
    found = mistakes({"tank": {"litres": 500, "litters": 1}}, {"DLMQ_TANK_LEVEL": "full"})
    assert found == [
        "tank.litres = 500 is not allowed: 1 to 100 litres",
        "tank.litters is unknown; did you mean tank.litres?",
        "DLMQ_TANK_LEVEL = 'full' is not allowed: 0 to 1",
        "name is missing: What people call it. (text that matches [a-z]+)",
    ]


@pytest.mark.parametrize(
    "name, value",
    [
        ("litres", True),
        ("litres", 1.5),
        ("litres", "1.5"),
        ("litres", 0),
        ("litres", None),
        ("litres", {}),
        ("level", "nan"),
        ("level", float("inf")),
        ("level", True),
        ("open_top", 1),
        ("open_top", "maybe"),
        ("labels", [1]),
        ("labels", [""]),
        ("labels", "a,B"),
        ("labels", 3),
    ],
)
def test_a_value_of_another_type_or_out_of_bounds_is_refused(name: str, value: object) -> None:
    (found,) = mistakes({"name": "eden", "tank": {name: value}})
    assert found.startswith(f"tank.{name} = {value!r} is not allowed: ")


def test_unknown_names_are_reported_in_every_layer_with_the_nearest_known_one() -> None:
    found = mistakes({"name": "eden", "litres": 3, "zzz": {"a": 1}}, {"DLMQ_TANK_OPEN_TOPP": "1"}, {"tank.lable": "x"})
    assert found == [
        "litres is unknown; did you mean tank.litres?",
        "zzz is unknown",
        "DLMQ_TANK_OPEN_TOPP is unknown; did you mean tank.open_top?",
        "option tank.lable is unknown; did you mean tank.labels?",
    ]


def test_a_section_that_is_not_a_table_is_a_mistake_not_a_crash() -> None:
    assert mistakes({"name": "eden", "tank": 3})[0].startswith("tank is unknown")


def test_rules_over_several_knobs_are_reported_beside_other_mistakes() -> None:
    found = mistakes({"name": "EDEN", "tank": {"open_top": True, "litres": 60}})
    assert found == [
        "name = 'EDEN' is not allowed: text that matches [a-z]+",
        "an open tank of more than 50 litres breeds mosquitoes",
    ]


def test_a_configuration_made_by_code_can_be_asked_for_its_violations() -> None:
    assert config.violations(Garden(name="eden")) == []
    assert len(config.violations(Garden(name="9", tank=Tank(litres=60, open_top=True, level=2.0)))) == 3


def test_the_fingerprint_covers_cluster_wide_knobs_only() -> None:
    base = config.fingerprint(Garden(name="eden"))
    assert config.fingerprint(Garden(name="eden", tank=Tank(level=0.1))) == base
    assert config.fingerprint(Garden(name="eden", tank=Tank(litres=11))) != base
    assert config.fingerprint(Garden(name="oz")) != base


def test_the_handbook_has_a_row_for_every_knob() -> None:
    text = config.handbook(Garden)
    for row in config.describe(Garden):
        assert f"| `{row.name}` |" in text and row.doc in text
    assert "| (required) |" in text and "`false`" in text
    assert [row.env for row in config.describe(Garden)][:2] == ["DLMQ_NAME", "DLMQ_TANK_LITRES"]
