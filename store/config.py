"""Knobs of the store. What shapes the log or derived files is cluster-wide, so that replicas stay equal.

Tests pass tiny values, so that every wrap-around happens at once: `StoreConfig(segment_bytes=4096)` is legal.
"""

from dataclasses import dataclass

from model.config import knob

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ENVELOPE_BYTES = 48  # restated, not imported: a blank entry at a segment's end needs this much room (store/entry.py)


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    segment_bytes: int = knob(
        GIB, "Size of one commitlog file; fixed for the life of a group.",
        unit="bytes", minimum=4 * KIB, maximum=4 * GIB - 4 * KIB, scope="cluster",
    )
    entry_bytes_max: int = knob(
        8 * MIB, "Largest entry, envelope included; segment_bytes - 48 counts when that is less.",
        unit="bytes", minimum=1 * KIB, maximum=256 * MIB, scope="cluster",
    )
    queue_file_units: int = knob(
        300_000, "Messages per consume queue file; fixed for the life of a group.",
        minimum=4, maximum=100_000_000, scope="cluster",
    )
    index_slots: int = knob(
        5_000_000, "Hash slots per key index file; fixed for the life of a group.",
        minimum=4, maximum=500_000_000, scope="cluster",
    )
    index_units: int = knob(
        20_000_000, "Keys per key index file; fixed for the life of a group.",
        minimum=4, maximum=500_000_000, scope="cluster",
    )
    checkpoint_bytes: int = knob(
        64 * MIB, "Log applied between two checkpoints: what a restart after a crash reads again.",
        unit="bytes", minimum=1 * KIB, maximum=64 * GIB,
    )
    retention_hours: int = knob(
        72, "Age at which a segment may go.", unit="hours", minimum=1, maximum=24 * 3650, scope="cluster",
    )
    retention_hour_of_day: int = knob(
        4, "Hour (UTC) in which aged segments are dropped.", unit="o'clock", minimum=0, maximum=23, scope="cluster",
    )
    disk_clean_percent: int = knob(
        75, "Disk usage from which aged segments go at any hour.", unit="percent", minimum=1, maximum=100,
    )
    disk_force_clean_percent: int = knob(
        85, "Disk usage from which the oldest segments go whatever their age.", unit="percent", minimum=1, maximum=100,
    )
    disk_refuse_percent: int = knob(
        90, "Disk usage from which sends are refused.", unit="percent", minimum=1, maximum=100,
    )
    scrub_bytes_per_second: int = knob(
        8 * MIB, "Speed of the background verification of old segments; 0 turns it off.",
        unit="bytes/s", minimum=0, maximum=16 * GIB,
    )

    @property
    def entry_bytes_limit(self) -> int:
        """The largest entry that may be proposed: an entry and the blank behind it fit into one segment."""
        return min(self.entry_bytes_max, self.segment_bytes - ENVELOPE_BYTES)

    def problems(self) -> list[str]:
        marks = (self.disk_clean_percent, self.disk_force_clean_percent, self.disk_refuse_percent)
        if list(marks) != sorted(set(marks)):
            rising = "store.disk_clean_percent < store.disk_force_clean_percent < store.disk_refuse_percent"
            return [f"disk marks {marks[0]}, {marks[1]}, {marks[2]} must rise: {rising}"]
        return []
