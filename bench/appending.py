"""What storing a message costs a leader, against moving its bytes and nothing else.

    production: check | Composition: stamp, preamble, body | CommitLog.append_entry: crc, chain, copy into the map
    baseline:   copy of the same messages into a mapped file of the same size | crc32c of the same messages

Law: both sides write to preallocated files that were made and warmed by the same production code, take the same sends
from a pool that is larger than the nearest caches, and alternate within a run; a ratio compares processor time of
neighbours. Columns come with the send, as a client delivers them. Nothing is synced, except where the mode says so.
Does not know: the network, replication, dispatching.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from crc32c import crc32c

from bench.lone import START_MS, request
from bench.timing import Span, best_cpu, best_wall, median_cpu, median_wall, timed
from broker.composing import Composition
from broker.ports import SendRequest
from model.batch import check
from store.commitlog import CommitLog
from store.entry import EntryKind
from store.preamble import SubBatch
from store.realdisk import RealDisk
from store.segment import allocate, warm

TOPIC = "orders"
STORE_HOST = bytes(8)
POOL_BYTES = 16 << 20
POOL_MAX = 1024  # sends; of single messages so many are enough to leave the first cache
MIB = 1 << 20


class Case(NamedTuple):
    body_bytes: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.body_bytes}b_{self.batch}"


CASES = [Case(body, batch) for body in (100, 1024) for batch in (1, 32, 1000)]


class Result(NamedTuple):
    case: Case
    sync: bool
    messages: int
    stored_bytes: int  # messages without envelope and preamble
    spans: list[Span]
    plain: list[Span]  # the baseline; empty where there is none

    @property
    def cpu_us(self) -> float:
        """Per message."""
        return best_cpu(self.spans) / self.messages * 1e6

    @property
    def copy_ratio(self) -> float:
        return median(span.cpu / plain.cpu for span, plain in zip(self.spans, self.plain, strict=True))

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "body_bytes": self.case.body_bytes,
            "batch": self.case.batch,
            "mode": "sync" if self.sync else "async",
            "messages": self.messages,
            "stored_bytes_per_message": round(self.stored_bytes / self.messages),
            "cpu_us_per_message": round(self.cpu_us, 4),
            "cpu_us_per_message_median": round(median_cpu(self.spans) / self.messages * 1e6, 4),
            "mb_per_second": round(self.stored_bytes / best_wall(self.spans) / 1e6, 1),
            "mb_per_second_median": round(self.stored_bytes / median_wall(self.spans) / 1e6, 1),
            "messages_per_second": round(self.messages / best_wall(self.spans)),
        }
        if self.plain:
            found["copy_cpu_us_per_message"] = round(best_cpu(self.plain) / self.messages * 1e6, 4)
            found["copy_ratio"] = round(self.copy_ratio, 2)
            found["copy_ratio_best"] = round(best_cpu(self.spans) / best_cpu(self.plain), 2)
        return found


def sends(case: Case, random: Random, pool_bytes: int = POOL_BYTES, queue: int = 0) -> list[SendRequest]:
    """A pool of different sends; each message has a tag and the producer's own id."""
    count = max(2, min(POOL_MAX, pool_bytes // (case.batch * (case.body_bytes + 160))))
    return [_send(case, random, queue) for _ in range(count)]


def _send(case: Case, random: Random, queue: int) -> SendRequest:
    bodies = [random.randbytes(case.body_bytes) for _ in range(case.batch)]
    keys = [f"TAGS\x01red\x02UNIQ_KEY\x01{random.getrandbits(128):032X}".encode() for _ in bodies]
    return request(TOPIC, queue, bodies, keys)


def measure(
    directory: Path, case: Case, bytes_wanted: int, repeats: int, *, sync: bool, entries_max: int = 1 << 30
) -> Result:
    """Append entries of one case, again and again on fresh files, with the baseline in between."""
    pool = sends(case, Random(f"{case}"), min(POOL_BYTES, bytes_wanted))
    entries = max(1, min(entries_max, bytes_wanted // len(pool[0].messages)))
    chosen = [pool[number % len(pool)] for number in range(entries)]
    stored = sum(len(send.messages) for send in chosen)
    preambles = entries * (256 + case.batch * 32)
    segment_bytes = -(-(stored + preambles) // MIB) * MIB
    spans, plain = [], []
    for number in range(repeats):
        if not sync:
            plain.append(_plain_copy(directory / f"plain-{case.name}-{number}", chosen, segment_bytes))
        spans.append(_append(directory / f"log-{case.name}-{number}", chosen, segment_bytes, sync=sync))
    return Result(case, sync, entries * case.batch, stored, spans, plain)


def _plain_copy(directory: Path, chosen: list[SendRequest], size: int) -> Span:
    disk = RealDisk(directory)
    file = allocate(disk, 0, size)
    warm(file)

    def work() -> None:
        at = 0
        for send in chosen:
            messages = send.messages
            file.write_at(at, messages)
            crc32c(messages)
            at += len(messages)

    span = timed(work)
    file.close()
    disk.remove_tree("commitlog")
    return span


def _append(directory: Path, chosen: list[SendRequest], segment_bytes: int, *, sync: bool) -> Span:
    disk = RealDisk(directory)
    log = CommitLog.open_at(disk, segment_bytes, 0, 0, 0, 0)
    log.ensure_next()

    def work() -> None:
        offset = 0
        for send in chosen:
            offset = append_send(log, send, offset)
            if sync:
                disk.sync(log.begin_sync())

    span = timed(work)
    log.close()
    disk.remove_tree("commitlog")
    return span


def append_send(log: CommitLog, send: SendRequest, offset: int) -> int:
    """The leader's way of one send into the log; the next queue offset."""
    lengths = send.columns.lengths
    check(send.messages, lengths, send.topic, send.queue)
    count = len(lengths)
    composition = Composition(b"", [send], [SubBatch(send.topic, send.queue, count, offset)])
    composition.place(log.end, START_MS, STORE_HOST)
    log.append_entry(1, START_MS, EntryKind.DATA, composition.body)
    return offset + count


def measure_all(
    directory: Path, bytes_wanted: int, repeats: int, sync_entries: int, tell: Callable[[str], None]
) -> list[Result]:
    """All cases, without a sync and with one per entry."""
    results = []
    for case in CASES:
        tell(f"append {case.batch} x {case.body_bytes} B")
        share = bytes_wanted if case.batch > 1 else bytes_wanted // 4  # single messages are slow enough to be seen
        results.append(measure(directory, case, share, repeats, sync=False))
        results.append(measure(directory, case, bytes_wanted, repeats, sync=True, entries_max=sync_entries))
    return results
