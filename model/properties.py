r"""The property string of a message, and Java's hash, which tags and keys are found by.

    TAGS \x01 red \x02 KEYS \x01 order-7 order-8 \x02 UNIQ_KEY \x01 0A00...      (UTF-8; a trailing \x02 is allowed)

Law: what `encode` writes, `parse` gives back; what foreign clients write, `parse` reads as RocketMQ does (pairs
without a name or a value are skipped, the last of two equal names counts).
Does not know: what a property makes the broker do.
"""

from collections.abc import Mapping
from functools import lru_cache
from operator import mul

import numpy as np
import numpy.typing as npt

from model.errors import MessageIllegal

NAME_END = "\x01"
PAIR_END = "\x02"
PROPERTIES_BYTES_MAX = 32767  # the length is a signed 16-bit field

KEYS = "KEYS"  # separated by spaces
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"  # the producer's own id of the message: the same in every retry
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"

INT32_SIGN = 1 << 31
INT32_SPAN = 1 << 32
POWERS_CACHED_MAX = 256  # texts of so many different lengths; keys and tags are short
TAGS_CACHED_MAX = 4096  # producers use a handful of tags; a stream of random ones must not fill memory


def encode(properties: Mapping[str, str]) -> bytes:
    """The stored form, without a trailing separator. Refuses what `parse` would not give back."""
    for name, value in properties.items():
        if not name or not value:
            raise MessageIllegal(f"property {name!r} has an empty name or value, which readers drop")
        if NAME_END in name or PAIR_END in name or PAIR_END in value:
            raise MessageIllegal(f"property {name!r} contains a separator (0x01 or 0x02)")
    try:
        raw = PAIR_END.join(f"{name}{NAME_END}{value}" for name, value in properties.items()).encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"a property is not valid text ({error.reason})") from None
    if len(raw) > PROPERTIES_BYTES_MAX:
        raise MessageIllegal(f"the properties take {len(raw)} bytes; at most {PROPERTIES_BYTES_MAX} are possible")
    return raw


def parse(raw: bytes | bytearray | memoryview) -> dict[str, str]:
    """Never fails: bytes that are not UTF-8 become U+FFFD, as a Java reader would see them."""
    found = {}
    for pair in str(raw, "utf-8", "replace").split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def index_keys(properties: Mapping[str, str]) -> list[str]:
    """The keys a message can be found by: the producer's own id first, then each of KEYS."""
    own = properties.get(UNIQ_KEY)
    keys = [key for key in properties.get(KEYS, "").split(" ") if key]
    return keys if own is None else [own, *keys]


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, wrapped to a signed 32-bit number."""
    if text.isascii():
        units: bytes | list[int] = text.encode()
    else:
        units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").tolist()
    # The sum form of the usual h = 31 * h + unit: runs in C, and the terms are small, so one wrap at the end is enough.
    total: int = sum(map(mul, units, _power_tuple(len(units)))) % INT32_SPAN
    return total - INT32_SPAN if total & INT32_SIGN else total


@lru_cache(TAGS_CACHED_MAX)
def tag_hash(tag: str | None) -> int:
    """What the consume queue stores; 0 when there is no tag."""
    return java_hash(tag) if tag else 0


def index_hash(topic: str, key: str) -> int:
    return fold_hash(java_hash(f"{topic}#{key}"))


def fold_hash(value: int) -> int:
    """|value|; the one number without a positive twin becomes 0, as in RocketMQ."""
    return 0 if value == -INT32_SIGN else abs(value)


def java_hash_rows(rows: npt.NDArray[np.uint8], before: str = "") -> npt.NDArray[np.int32]:
    """`java_hash(before + row)` for each row of ASCII bytes, all of one length.

    hash(a + b) = hash(a) * 31**len(b) + hash(b), modulo 2**32, so the common beginning is hashed once.
    """
    width = rows.shape[1]
    powers = _powers(width + 1)
    start = np.uint32(java_hash(before) % INT32_SPAN * int(powers[0]) % INT32_SPAN)
    totals = np.full(len(rows), start, np.uint32)
    for column in range(width):  # over columns: a row is short, a batch is long
        totals += rows[:, column] * powers[column + 1]
    return totals.view(np.int32)


def fold_hash_rows(hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """`fold_hash` of each; numpy's abs leaves the smallest number negative."""
    return np.maximum(np.abs(hashes), 0)


@lru_cache(POWERS_CACHED_MAX)
def _power_tuple(count: int) -> tuple[int, ...]:
    """31**(count-1) ... 31**0 modulo 2**32."""
    return tuple(pow(31, exponent, INT32_SPAN) for exponent in range(count - 1, -1, -1))


@lru_cache(POWERS_CACHED_MAX)
def _powers(count: int) -> npt.NDArray[np.uint32]:
    return np.array(_power_tuple(count), np.uint32)
