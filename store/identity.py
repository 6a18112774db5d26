"""Whose store this is: config/identity.json and its copy, for people and for the check at start.

Law: written once, when an empty directory becomes a store, and never changed. A directory whose identity differs from
the configuration, or that a newer release wrote, is refused and nothing in it is touched.
The knobs that shape its files are part of it: with another one, names and places of bytes would no longer be those of
the other replicas, nor those that a rebuild gives.
A copy is intact if its bytes are exactly what `encode` gives for what it says; the checksum inside is for people and
for other programs. One intact copy is enough.
Does not know: peers, where the names come from, how an incarnation is drawn.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

import crc32c

from model.errors import NewerFormat, WrongStore
from store.config import StoreConfig
from store.disk import Disk
from store.hardstate import DamagedState

FORMAT = 1  # of the whole directory: entries, queues, index, snapshots
NAMES = ("config/identity.json", "config/identity.json.copy")
SHAPE = ("segment_bytes", "queue_file_units", "index_slots", "index_units")  # fixed for the life of a group
_INT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    cluster: str
    group: str
    node: str
    incarnation: int  # new for every empty directory: a wiped node is not the one that voted before
    segment_bytes: int  # decides where entries lie
    queue_file_units: int  # these three decide names and extents of derived files
    index_slots: int
    index_units: int

    @property
    def shape(self) -> StoreConfig:
        """The knobs with which the files of this store were made; all others are defaults."""
        return StoreConfig(**{name: getattr(self, name) for name in SHAPE})


def encode(identity: StoreIdentity) -> bytes:
    record: dict[str, Any] = {"format": FORMAT, **asdict(identity)}
    plain = json.dumps(record, sort_keys=True).encode()
    return (json.dumps({**record, "checksum": f"{crc32c.crc32c(plain):08x}"}, indent=2) + "\n").encode()


def new(cluster: str, group: str, node: str, incarnation: int, store: StoreConfig) -> StoreIdentity:
    """The identity of a store that is made with this configuration."""
    return StoreIdentity(cluster, group, node, incarnation, **{name: getattr(store, name) for name in SHAPE})


def create(disk: Disk, identity: StoreIdentity) -> None:
    """Make an empty directory a store. The second copy first: a store without the first one was never finished."""
    assert not any(disk.exists(name) for name in NAMES), "an identity is written once"
    mend(disk, identity)


def mend(disk: Disk, identity: StoreIdentity) -> tuple[str, ...]:
    """Write the copies that are missing or damaged; names what was mended."""
    data = encode(identity)
    mended = []
    for name in reversed(NAMES):
        if not disk.exists(name) or disk.read(name) != data:
            disk.replace(name, data)
            mended.append(name)
    return tuple(mended)


def load(disk: Disk) -> StoreIdentity | None:
    """The identity, None for a directory that has none. Changes nothing on disk."""
    copies = [disk.read(name) for name in NAMES if disk.exists(name)]
    if not copies:
        return None
    intact = {identity for identity in map(_decode, copies) if identity is not None}
    if len(intact) == 1:
        return intact.pop()
    if intact:
        raise DamagedState(f"{' and '.join(NAMES)} contradict one another")
    if all(_format_of(copy) > FORMAT for copy in copies):
        raise NewerFormat(f"the store has format {_format_of(copies[0])}, this release knows up to {FORMAT}")
    raise DamagedState(f"{' and '.join(NAMES)}: no valid copy", do="restore the file from a backup of this very node")


def check(found: StoreIdentity, *, cluster: str, group: str, node: str, store: StoreConfig) -> None:
    """Raise WrongStore, naming every difference, unless the store is the one that the configuration means."""
    actual, wanted = asdict(found), asdict(new(cluster, group, node, found.incarnation, store))
    wrong = {key: f"{key} is {actual[key]!r}, not {value!r}" for key, value in wanted.items() if actual[key] != value}
    if wrong:
        fixed = [key for key in SHAPE if key in wrong]
        why = f" ({', '.join(fixed)}: fixed for the life of a group)" if fixed else ""
        raise WrongStore(f"this store's {', its '.join(wrong.values())}{why}")


def _decode(data: bytes) -> StoreIdentity | None:
    """What an intact copy says, None for any other bytes."""
    record = _parse(data)
    try:
        identity = StoreIdentity(**{field.name: record[field.name] for field in fields(StoreIdentity)})
    except KeyError:
        return None
    numbers = (identity.incarnation, *(getattr(identity, name) for name in SHAPE))
    numbers_fit = all(type(number) is int and 0 <= number <= _INT_MAX for number in numbers)
    names_fit = all(isinstance(name, str) for name in (identity.cluster, identity.group, identity.node))
    return identity if numbers_fit and names_fit and encode(identity) == data else None


def _parse(data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):  # ValueError: not UTF-8, not JSON, a number with too many digits
        return {}
    return record if isinstance(record, dict) else {}


def _format_of(data: bytes) -> int:
    version = _parse(data).get("format")
    return version if type(version) is int else 0
