"""Mending bytes below the durable watermark with what a peer has.

Law: a fenced node takes a peer's entries only when they are proven to be what stood here: they continue the chain crc
of the good bytes before the damage, and they are committed, or rejoin the good bytes after it, or end exactly at the
recorded durable watermark with its chain crc. Everything else stays untouched on disk.
Why committed bytes are always right, even if other bytes stood here: what is committed at a position is the log.
Does not know: the network, when to ask again."""

from store.disk import Disk
from store.entry import ENVELOPE_BYTES, CorruptEntry, peek, verify
from store.scan import repair_in_place
from store.segment import segment_name

MENDING = "config/mending"
GIVE_BYTES = 1 << 20  # in one answer; at least one entry


def proven_end(
    disk: Disk, segment_bytes: int, position: int, payload: bytes, committed: int, durable: int, durable_chain: int
) -> int:
    """Up to where the payload's entries from `position` on are proven; `position` when none is."""
    at, proven = 0, position
    while at < len(payload):
        header = peek(payload, at, position + at)
        at += header.size
        end = header.end
        if end <= committed or (end == durable and header.chain == durable_chain) or (
            end < durable and _continues(disk, segment_bytes, end, header.chain)
        ):
            proven = end
    return proven


def mend(disk: Disk, segment_bytes: int, position: int, chain: int, payload: bytes, end: int) -> tuple[int, int]:
    """Write the proven part; the position and chain crc reached.

    The record outlives a failed sync: the next process would see the mended bytes in the page cache, below the durable
    watermark, and never write them again, while the disk still holds the damaged ones."""
    disk.replace(MENDING, str(mending_from(disk, position)).encode())
    reached = repair_in_place(disk, segment_bytes, position, payload[: end - position], chain)
    mending_done(disk)
    return reached


def mending_from(disk: Disk, otherwise: int) -> int:
    """From where on a repair that did not end has written; 0 if its record cannot be read."""
    if not disk.exists(MENDING):
        return otherwise
    text = disk.read(MENDING)
    return min(int(text), otherwise) if text.isdigit() else 0


def mending_done(disk: Disk) -> None:
    """What was mended is on disk."""
    if disk.exists(MENDING):
        disk.remove(MENDING)
        disk.sync_dir("config")


def _continues(disk: Disk, segment_bytes: int, position: int, chain: int) -> bool:
    """Whether the local entry at `position` verifies as the successor of `chain`."""
    entry = _local_entry(disk, segment_bytes, position)
    if entry is None:
        return False
    try:
        verify(entry, 0, position, chain)
    except CorruptEntry:
        return False
    return True


def _local_entry(disk: Disk, segment_bytes: int, position: int) -> bytes | None:
    base = position // segment_bytes * segment_bytes
    if not disk.exists(segment_name(base)):
        return None
    file = disk.open(segment_name(base))
    try:
        envelope = file.pread(position - base, ENVELOPE_BYTES)
        size = peek(envelope, 0, position).size if len(envelope) == ENVELOPE_BYTES else 0
        entry = file.pread(position - base, size) if size <= segment_bytes - (position - base) else b""
    except CorruptEntry:
        return None
    finally:
        file.close()
    return entry if size and len(entry) == size else None


def entries_from(disk: Disk, segment_bytes: int, position: int, below: int) -> bytes:
    """Whole verified entries from `position` on, read from the files: what this node can give to a damaged one.

    The first entry's chain is checked by the asker, who knows what comes before it."""
    parts: list[bytes] = []
    total, chain = 0, None
    while position < below and total < GIVE_BYTES:
        entry = _local_entry(disk, segment_bytes, position)
        if entry is None:
            break
        try:
            header = verify(entry, 0, position, chain)
        except CorruptEntry:
            break
        parts.append(entry)
        total, position, chain = total + len(entry), header.end, header.chain
    return b"".join(parts)
