"""Everything one broker process is told: who it is, how its group keeps time, how it stores.

Law: one frozen value, built by `model.config.load`, handed down. Rules over several knobs live beside the knobs they
bind. Does not know: files, environment, command line.
"""

from dataclasses import dataclass, field

from model.config import REQUIRED, knob
from store.config import StoreConfig

KIB, MIB = 1 << 10, 1 << 20
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"  # also a safe file name: no slash, no leading dot
HEARTBEATS_PER_TIMEOUT_MIN = 2  # a single lost heartbeat must not cost an election
VOTERS_MAX = 9  # a majority of 9 survives 4 losses; more voters only slow every commit


@dataclass(frozen=True, kw_only=True)
class RaftTiming:
    tick_ms: int = knob(10, "How often a node looks at its clock.", unit="ms", minimum=1, maximum=1000, scope="cluster")
    heartbeat_ms: int = knob(
        100, "Silence after which a leader says that it is there.",
        unit="ms", minimum=1, maximum=10_000, scope="cluster",
    )
    election_min_ms: int = knob(
        500, "Shortest silence of the leader after which a follower asks for votes.",
        unit="ms", minimum=3, maximum=60_000, scope="cluster",
    )
    election_max_ms: int = knob(
        1000, "Longest such silence; each node draws its own between the two.",
        unit="ms", minimum=4, maximum=120_000, scope="cluster",
    )
    append_bytes_max: int = knob(
        1 * MIB, "Log bytes in one append message; a single larger entry still travels whole.",
        unit="bytes", minimum=1 * KIB, maximum=64 * MIB,
    )
    in_flight_bytes_max: int = knob(
        8 * MIB, "Log bytes sent to one follower and not yet acknowledged.",
        unit="bytes", minimum=1 * KIB, maximum=1024 * MIB,
    )
    link_loss_delay_ms_max: int = knob(
        100, "Longest random wait before a follower that lost its link to the leader asks for pre-votes.",
        unit="ms", minimum=0, maximum=60_000, scope="cluster",
    )

    def problems(self) -> list[str]:
        found = []
        if self.tick_ms > self.heartbeat_ms:
            found.append(f"raft.tick_ms {self.tick_ms} is longer than raft.heartbeat_ms {self.heartbeat_ms}")
        if self.election_min_ms <= HEARTBEATS_PER_TIMEOUT_MIN * self.heartbeat_ms:
            found.append(f"raft.election_min_ms {self.election_min_ms} must be more than "
                         f"{HEARTBEATS_PER_TIMEOUT_MIN} x raft.heartbeat_ms {self.heartbeat_ms}")
        if self.election_max_ms <= self.election_min_ms:
            found.append(f"raft.election_max_ms {self.election_max_ms} must be more than raft.election_min_ms "
                         f"{self.election_min_ms}: equal timeouts split votes for ever")
        if self.in_flight_bytes_max < self.append_bytes_max:
            found.append(f"raft.in_flight_bytes_max {self.in_flight_bytes_max} is less than one append of "
                         f"raft.append_bytes_max {self.append_bytes_max}")
        return found


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    cluster: str = knob(REQUIRED, "Name of the cluster; others are refused.", pattern=NAME, scope="cluster")
    group: str = knob(REQUIRED, "Name of the Raft group = broker name.", pattern=NAME, scope="cluster")
    node: str = knob(REQUIRED, "Name of this node; one of voters.", pattern=NAME)
    # Local: later members come and go by membership entries, and a newcomer's list names it while its peers' do not.
    voters: tuple[str, ...] = knob(REQUIRED, "Nodes that form the group when all of them are empty.", pattern=NAME)
    directory: str = knob(REQUIRED, "Where this node keeps its files.", pattern=r".+")

    def problems(self) -> list[str]:
        found = []
        if self.node not in self.voters:
            found.append(f"node.node {self.node!r} is not one of node.voters {', '.join(self.voters)}")
        if len(set(self.voters)) != len(self.voters):
            found.append(f"node.voters names a node twice: {', '.join(self.voters)}")
        if len(self.voters) > VOTERS_MAX:
            found.append(f"node.voters has {len(self.voters)} names; at most {VOTERS_MAX} make sense")
        return found


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    node: NodeConfig
    raft: RaftTiming = field(default_factory=RaftTiming)
    store: StoreConfig = field(default_factory=StoreConfig)
