"""The broker's configuration: rules over several knobs, and docs/CONFIG.md, which is generated from it."""

from pathlib import Path
from typing import Any

import pytest

from broker.config import BrokerConfig, NodeConfig, RaftTiming
from model import config
from model.errors import ConfigError

NODE = {"cluster": "c", "group": "g", "node": "n0", "voters": ["n0", "n1", "n2"], "directory": "/data"}
HANDBOOK = Path(__file__).parents[2] / "docs" / "CONFIG.md"


def mistakes(toml: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        config.load(BrokerConfig, toml, {}, {})
    return caught.value.problems


def test_a_node_section_is_all_that_is_needed() -> None:
    loaded = config.load(BrokerConfig, {"node": NODE}, {}, {})
    assert loaded.node == NodeConfig(cluster="c", group="g", node="n0", voters=("n0", "n1", "n2"), directory="/data")
    assert loaded.raft == RaftTiming()


def test_everything_that_is_missing_is_named() -> None:
    assert [problem.split()[0] for problem in mistakes({})] == [
        "node.cluster",
        "node.group",
        "node.node",
        "node.voters",
        "node.directory",
    ]


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a b", "x" * 64, "é"])
def test_names_are_safe_as_file_names(name: str) -> None:
    assert any(problem.startswith("node.group = ") for problem in mistakes({"node": NODE | {"group": name}}))


def test_a_node_that_is_not_listed_and_one_listed_twice_are_reported() -> None:
    found = mistakes({"node": NODE | {"node": "n9", "voters": ["n0", "n0"]}})
    assert "node.node 'n9' is not one of" in found[0] and "names a node twice: n0, n0" in found[1]
    assert "at most 9" in mistakes({"node": NODE | {"voters": [f"n{i}" for i in range(10)]}})[0]


def test_every_broken_rule_of_timing_is_reported() -> None:
    raft = {
        "tick_ms": 300,
        "heartbeat_ms": 250,
        "election_min_ms": 500,
        "election_max_ms": 500,
        "in_flight_bytes_max": 2048,
    }
    found = mistakes({"node": NODE, "raft": raft})
    assert len(found) == 4
    assert "election_min_ms 500 must be more than 2 x raft.heartbeat_ms 250" in found[1]


def test_nodes_of_one_group_have_one_fingerprint() -> None:
    here = config.load(BrokerConfig, {"node": NODE}, {}, {})
    there = config.load(BrokerConfig, {"node": NODE | {"node": "n1", "directory": "/other"}}, {}, {})
    other = config.load(BrokerConfig, {"node": NODE, "store": {"segment_bytes": 4096}}, {}, {})
    assert config.fingerprint(here) == config.fingerprint(there) != config.fingerprint(other)


def test_the_handbook_is_what_the_declarations_say(rewrite: bool) -> None:
    text = config.handbook(BrokerConfig)
    if rewrite:
        HANDBOOK.write_text(text)
    assert HANDBOOK.read_text() == text, "run: .venv/bin/python -m pytest tests/broker/test_config.py --rewrite"
