"""What one name server is told: how long silence is believed, and how much it may be made to remember.

Law: one frozen value, built by `model.config.load`, handed down; every table has its bound here.
Does not know: files, environment, command line, ports.
"""

from dataclasses import dataclass, field

from model.config import knob

KIB, MIB = 1 << 10, 1 << 20
HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True)
class RegistryConfig:
    expiry_ms: int = knob(
        120_000, "Silence after which a broker is taken out of the routes; brokers register every 30 s.",
        unit="ms", minimum=1, maximum=HOUR_MS,
    )
    scan_ms: int = knob(
        10_000, "How often the name server looks for silent brokers.", unit="ms", minimum=1, maximum=HOUR_MS
    )
    memory_ms: int = knob(
        7 * 24 * HOUR_MS, "How long a group without a live node is remembered, so that its old leader cannot return.",
        unit="ms", minimum=1, maximum=366 * 24 * HOUR_MS,
    )
    clusters_max: int = knob(16, "Clusters known at once.", minimum=1, maximum=10_000)
    groups_max: int = knob(128, "Broker groups known at once, all clusters together.", minimum=1, maximum=10_000)
    nodes_per_group_max: int = knob(16, "Live nodes of one group, learners included.", minimum=1, maximum=1000)
    topics_per_group_max: int = knob(20_000, "Topics one group may announce.", minimum=1, maximum=1_000_000)
    body_bytes_max: int = knob(
        4 * MIB, "Largest registration, unpacked: 20000 topics take 3.4 MiB.",
        unit="bytes", minimum=1 * KIB, maximum=256 * MIB,
    )

    def problems(self) -> list[str]:
        found = []
        if self.scan_ms > self.expiry_ms:
            found.append(f"registry.scan_ms {self.scan_ms} is longer than registry.expiry_ms {self.expiry_ms}: "
                         f"a dead broker would stay in the routes for both")
        if self.memory_ms < self.expiry_ms:
            found.append(f"registry.memory_ms {self.memory_ms} is less than registry.expiry_ms {self.expiry_ms}: "
                         f"an old leader could return while its late registrations may still arrive")
        if self.clusters_max > self.groups_max:
            found.append(f"registry.clusters_max {self.clusters_max} is more than registry.groups_max "
                         f"{self.groups_max}, and a cluster has at least one group")
        return found


@dataclass(frozen=True, kw_only=True)
class KvLimits:
    file_bytes_max: int = knob(
        1 * MIB, "Largest dictionary, as its file: every change writes the whole of it.",
        unit="bytes", minimum=1 * KIB, maximum=64 * MIB,
    )
    value_bytes_max: int = knob(32 * KIB, "Largest single value.", unit="bytes", minimum=1, maximum=1 * MIB)

    def problems(self) -> list[str]:
        if self.value_bytes_max > self.file_bytes_max:
            return [f"kv.value_bytes_max {self.value_bytes_max} is more than kv.file_bytes_max {self.file_bytes_max}"]
        return []


@dataclass(frozen=True, kw_only=True)
class NamesrvConfig:
    registry: RegistryConfig = field(default_factory=RegistryConfig)
    kv: KvLimits = field(default_factory=KvLimits)
