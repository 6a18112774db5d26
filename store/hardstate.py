"""Small records that must never be lost or half new: (term, vote) and the watermarks, each in two mirrored slots.

Law: `save` writes one slot and syncs it, then the other and syncs it, and only then returns; whatever depends on the
record leaves after that. So at every moment one slot is whole, and once `save` has returned both say the same.

    slot (512 bytes = one sector, one file each):
    0     4        8         16     20        20+n          508
    | magic | format | sequence | size | content | zeros ... | crc32c of all before |

The newest valid slot counts. Why an older valid slot is safe for a vote: two slots differ only while a `save` has not
returned (or crashed), and nothing that depends on the newer one has left then. `load` ends that state: it writes what
it found to both slots again before anyone acts on it. Counter-example without that: crash between A (term 5, vote x)
and B (term 4); the node starts, acts on A without a new save, A rots, and the next start votes in term 5 again.
It also rewrites equal slots: after a failed sync the page cache may show bytes which the disk does not hold.

The slot that is damaged or older is always written first: were the only good one written first and torn, nothing
would be left. A missing or damaged file is replaced whole (temporary file, rename), a good one overwritten in place.
Does not know: what a term means, when a save is due.
"""

import struct
from typing import NamedTuple

import crc32c

from model.errors import StoreError
from store.disk import Disk

SLOT_BYTES = 512  # one sector: the smallest unit a disk loses or keeps
_HEAD = struct.Struct(
    ">4s"  # magic, one per kind of record
    "I"  # format
    "Q"  # sequence: one more at every save
    "I"  # size of the content
)
_CRC = struct.Struct(">I")
_FORMAT = 1
_CONTENT_BYTES_MAX = SLOT_BYTES - _HEAD.size - _CRC.size
_HARD = struct.Struct(">q")  # term; the vote follows as UTF-8
_MARKS = struct.Struct(">qqI")  # durable, commit, chain crc at durable


class DamagedState(StoreError):
    """Bytes that this program wrote and synced do not verify, and no intact copy is left here."""

    means = "the disk lost or changed what it was given to keep"
    do = "restore this node from its peers: empty the directory and start it as a new member"


class HardState(NamedTuple):
    term: int
    vote: str  # "" = none given in this term


class Watermarks(NamedTuple):
    durable: int  # bytes of the log below it were synced: what does not verify there is damage, not a torn tail
    commit: int
    chain: int  # chain crc at `durable`: proves a repair that reaches exactly to it


class _Slot(NamedTuple):
    name: str
    present: bool
    sequence: int  # -1: not valid
    content: bytes


def _pack(magic: bytes, sequence: int, content: bytes) -> bytes:
    assert len(content) <= _CONTENT_BYTES_MAX, len(content)
    head = _HEAD.pack(magic, _FORMAT, sequence, len(content)) + content
    head += bytes(SLOT_BYTES - _CRC.size - len(head))
    return head + _CRC.pack(crc32c.crc32c(head))


def _unpack(magic: bytes, data: bytes) -> tuple[int, bytes] | None:
    """The sequence and content of a valid slot, None for anything else."""
    if len(data) != SLOT_BYTES or _CRC.pack(crc32c.crc32c(data[: -_CRC.size])) != data[-_CRC.size :]:
        return None
    found, version, sequence, size = _HEAD.unpack_from(data)
    if found != magic or version != _FORMAT or size > _CONTENT_BYTES_MAX:
        return None
    return sequence, data[_HEAD.size : _HEAD.size + size]


class MirroredRecord:
    """One small record in two files."""

    def __init__(self, disk: Disk, names: tuple[str, str], magic: bytes) -> None:
        self._disk = disk
        self._names = names
        self._magic = magic
        self._sequence = -1  # -1: `load` has not run
        self._valid: dict[str, int] = {}  # slot -> sequence
        self.damaged: tuple[str, ...] = ()  # what `peek` or `load` found unusable (`load` mended it)

    def peek(self) -> bytes | None:
        """The record, None if it was never saved. Changes nothing on disk."""
        slots = [self._read(name) for name in self._names]
        valid = [slot for slot in slots if slot.sequence >= 0]
        self._valid = {slot.name: slot.sequence for slot in valid}
        if not valid:
            self.damaged = tuple(slot.name for slot in slots if slot.present)
            if self.damaged:
                raise DamagedState(f"{' and '.join(self._names)}: no valid copy")
            self._sequence = 0
            return None
        newest = max(valid, key=lambda slot: slot.sequence)
        if any(slot.sequence == newest.sequence and slot.content != newest.content for slot in valid):
            raise DamagedState(f"{' and '.join(self._names)} contradict one another")
        self.damaged = tuple(slot.name for slot in slots if slot.sequence < 0)
        self._sequence = newest.sequence
        return newest.content

    def load(self) -> bytes | None:
        """Like `peek`, and makes both slots whole and equal before anyone acts on what they say."""
        content = self.peek()
        if content is not None:
            self._write_both(content)
        return content

    def save(self, content: bytes) -> None:
        if self._sequence < 0:
            self.load()
        self._sequence += 1
        self._write_both(content)

    def _read(self, name: str) -> _Slot:
        if not self._disk.exists(name):
            return _Slot(name, False, -1, b"")
        found = _unpack(self._magic, self._disk.read(name))
        return _Slot(name, True, -1, b"") if found is None else _Slot(name, True, *found)

    def _write_both(self, content: bytes) -> None:
        data = _pack(self._magic, self._sequence, content)
        for name in sorted(self._names, key=lambda name: self._valid.get(name, -1)):  # stable: A before B when equal
            if name in self._valid:
                self._overwrite(name, data)
            else:
                self._disk.replace(name, data)
            self._valid[name] = self._sequence

    def _overwrite(self, name: str, data: bytes) -> None:
        file = self._disk.open(name)
        try:
            file.write_at(0, data)
            self._disk.sync(self._disk.ticket([file]))
        finally:
            file.close()


class HardStateFile:
    """(term, vote) in config/hardstate.0 and config/hardstate.1."""

    NAMES = ("config/hardstate.0", "config/hardstate.1")

    def __init__(self, disk: Disk) -> None:
        self._record = MirroredRecord(disk, self.NAMES, b"DLHS")

    @property
    def damaged(self) -> tuple[str, ...]:
        return self._record.damaged

    def peek(self) -> HardState | None:
        return self._decode(self._record.peek())

    def load(self) -> HardState | None:
        return self._decode(self._record.load())

    def save(self, state: HardState) -> None:
        self._record.save(_HARD.pack(state.term) + state.vote.encode())

    @staticmethod
    def _decode(content: bytes | None) -> HardState | None:
        if content is None:
            return None
        try:
            return HardState(_HARD.unpack_from(content)[0], content[_HARD.size :].decode())
        except (struct.error, UnicodeDecodeError) as error:
            raise DamagedState(f"{HardStateFile.NAMES[0]} is valid but says nothing sensible: {error}") from error


class WatermarkFile:
    """The watermarks in `checkpoint` and its mirror `checkpoint.1`."""

    NAMES = ("checkpoint", "checkpoint.1")

    def __init__(self, disk: Disk) -> None:
        self._record = MirroredRecord(disk, self.NAMES, b"DLWM")

    @property
    def damaged(self) -> tuple[str, ...]:
        return self._record.damaged

    def peek(self) -> Watermarks | None:
        return self._decode(self._record.peek())

    def load(self) -> Watermarks | None:
        return self._decode(self._record.load())

    def save(self, marks: Watermarks) -> None:
        self._record.save(_MARKS.pack(*marks))

    @staticmethod
    def _decode(content: bytes | None) -> Watermarks | None:
        if content is None:
            return None
        if len(content) != _MARKS.size:
            raise DamagedState(f"{WatermarkFile.NAMES[0]} is valid but says nothing sensible")
        return Watermarks(*_MARKS.unpack(content))
