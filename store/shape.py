"""The knobs that shaped derived files, read off the files, for a look at a store without its configuration.

Law: what is returned would have given these file names, if any setting does; where the files leave it open, the default
counts, because then every setting gives the same bytes. A damaged file is outvoted by the others.
Does not know: what is in the log.
"""

import re
import struct
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import gcd

from store import consumequeue, keyindex
from store.config import StoreConfig
from store.consumequeue import UNIT_BYTES
from store.disk import Disk
from store.keyindex import HEADER

SLOT_BYTES = struct.calcsize(">i")  # a slot holds the number of a unit
SEARCH_BYTES = 1 << 20
_NAME = re.compile(r"\d{17}-(\d{20})")
_IndexFile = tuple[int, str]  # position of its first message, name


def guess_shape(disk: Disk, segment_bytes: int) -> StoreConfig:
    """Settings that fit the derived files of this store."""
    default = StoreConfig(segment_bytes=segment_bytes)
    matches = filter(None, map(_NAME.fullmatch, disk.list(keyindex.DIRECTORY)))
    files = sorted((int(match[1]), f"{keyindex.DIRECTORY}/{match[0]}") for match in matches)
    slots = Counter(filter(None, (_slots(disk, *file) for file in files))).most_common(1)
    index_slots = slots[0][0] if slots else default.index_slots
    return replace(
        default,
        queue_file_units=_queue_file_units(disk, default.queue_file_units),
        index_slots=index_slots,
        index_units=_index_units(disk, files, segment_bytes, index_slots, default.index_units),
    )


def _queue_file_units(disk: Disk, default: int) -> int:
    """Two files of one queue tell it; single ones only bound it."""
    steps, bases, longest = Counter[int](), 0, 0
    for topic in disk.list(consumequeue.DIRECTORY):
        for queue in disk.list(f"{consumequeue.DIRECTORY}/{topic}"):
            directory = f"{consumequeue.DIRECTORY}/{topic}/{queue}"
            names = [name for name in disk.list(directory) if name.isascii() and name.isdecimal()]
            firsts = [int(name) // UNIT_BYTES for name in names]
            steps.update(after - before for before, after in pairwise(firsts))
            for name in names:
                longest = max(longest, _size(disk, f"{directory}/{name}") // UNIT_BYTES)
            bases = gcd(bases, *firsts)
    if steps:
        return max(1, steps.most_common(1)[0][0])
    if bases % default == 0 and longest <= default:
        return default
    return bases or longest


def _slots(disk: Disk, position: int, name: str) -> int | None:
    """A sealed file's header tells it, in a growing one the first unit, which holds the position of the name."""
    file = disk.open(name)
    try:
        header = file.pread(0, HEADER.size)
        if len(header) < HEADER.size:
            return None
        facts = HEADER.unpack(header)
        if any(facts):
            room = file.size - HEADER.size - facts[5] * keyindex.UNIT_BYTES
        else:
            room = _first_unit(disk, name, position) - HEADER.size - keyindex.UNIT_BYTES
        return room // SLOT_BYTES if room > 0 and room % SLOT_BYTES == 0 else None
    finally:
        file.close()


def _first_unit(disk: Disk, name: str, position: int) -> int:
    """Where unit 1 of a growing file begins; all before it are zeros."""
    wanted = struct.pack(">q", position)
    file = disk.open(name)
    try:
        kept, at = b"", 0
        while data := file.pread(at, SEARCH_BYTES):
            found = (kept + data).find(wanted)
            if found >= 0:
                return at - len(kept) + found - struct.calcsize(">i")
            kept, at = data[-len(wanted) :], at + len(data)
        return 0
    finally:
        file.close()


def _index_units(disk: Disk, files: list[_IndexFile], segment_bytes: int, slots: int, default: int) -> int:
    """Only a file that ended before its segment did tells it, and then the fullest one is a setting that fits all."""
    segments = [position // segment_bytes for position, _ in files]
    if len(set(segments)) == len(segments):
        return default
    sizes = [_size(disk, name) for _, name in files]
    return max((size - HEADER.size - slots * SLOT_BYTES) // keyindex.UNIT_BYTES for size in sizes)


def _size(disk: Disk, name: str) -> int:
    file = disk.open(name)
    try:
        return file.size
    finally:
        file.close()
