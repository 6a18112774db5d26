"""The name server's configuration: RocketMQ's times by default, and rules over several knobs."""

import pytest

from model import config
from model.errors import ConfigError
from namesrv.config import NamesrvConfig


def test_the_defaults_are_rocketmqs_times_and_break_no_rule() -> None:
    loaded = config.load(NamesrvConfig, {}, {}, {})
    assert (loaded.registry.expiry_ms, loaded.registry.scan_ms) == (120_000, 10_000)
    assert config.violations(loaded) == []


def test_three_mistakes_are_three_lines() -> None:
    toml = {"registry": {"scan_ms": 200_000, "memory_ms": 5, "groups_max": 1}}
    with pytest.raises(ConfigError) as caught:
        config.load(NamesrvConfig, toml, {}, {})
    assert [line.split()[0] for line in caught.value.problems] == [
        "registry.scan_ms", "registry.memory_ms", "registry.clusters_max",
    ]


def test_a_value_must_fit_into_the_file() -> None:
    with pytest.raises(ConfigError, match=r"kv\.value_bytes_max"):
        config.load(NamesrvConfig, {"kv": {"file_bytes_max": 1024}}, {}, {})
