"""What a comparison of derived files with a rebuild means: damage, or something that the next start clears away.

    rebuilt and different, short or absent   below the checkpoint: damage        above it: after a crash harmless
    bytes where a rebuild leaves a hole      units below the log start: harmless  else: damage
    files that a rebuild does not make       nothing live in them: harmless       else: damage

Law: harmless is only what `cut_back` at the next start removes or writes anew without looking at it.
Does not know: the log, commands.
"""

from typing import NamedTuple

import numpy as np

from store import consumequeue, keyindex
from store.comparison import ComparingDisk, Difference, Expected
from store.consumequeue import UNIT_BYTES, UNIT_DTYPE

STEP_BYTES = UNIT_BYTES * 65536


class Extent(NamedTuple):
    """What is known of the log that the files were rebuilt from."""

    start: int
    end: int
    checkpoint: int  # files are complete to here
    crashed: bool
    deleted: frozenset[str]  # topics that were deleted above the checkpoint


class Judgement(NamedTuple):
    damage: list[Difference]
    harmless: int  # files with something that the next start clears away


def judge_derived(comparing: ComparingDisk, log: Extent) -> Judgement:
    """Judge all derived files after a rebuild ran over the log."""
    judge = _Judge(comparing, log)
    for _, expected in sorted(comparing.files.items()):
        judge.rebuilt(expected)
    if log.end >= log.checkpoint:
        for name in derived_names(comparing):
            if name not in comparing.files:
                judge.extra(name)
    return Judgement(judge.damage, judge.harmless)


class _Judge:
    def __init__(self, comparing: ComparingDisk, log: Extent) -> None:
        self._comparing = comparing
        self._disk = comparing.actual
        self._log = log
        self.damage: list[Difference] = []
        self.harmless = 0

    def rebuilt(self, expected: Expected) -> None:
        name = expected.name
        if expected.difference is not None:
            if expected.difference.counts:
                self.damage.append(expected.difference)
            else:
                self.harmless += 1
            return
        if self._log.end < self._log.checkpoint or not self._disk.exists(name):
            return  # the rebuild did not come to its end; or nothing was written to this file yet
        for offset, data in self._comparing.holes(expected):
            if self._stray(expected, offset, data):
                first = offset + next(i for i, byte in enumerate(data) if byte)
                self._find(name, first, "something stands where the log leaves zeros")
                return
            self.harmless += 1
        file = self._disk.open(name)
        size = file.size
        file.close()
        if size > expected.size:
            if self._log.crashed:
                self.harmless += 1
            else:
                self._find(name, expected.size, f"{size - expected.size} bytes more than the log gives")

    def _stray(self, expected: Expected, offset: int, data: bytes) -> bool:
        """Whether bytes in a hole can be met by a reader."""
        if expected.name.startswith(keyindex.DIRECTORY):
            sealed = bool(expected.covered) and expected.covered[0][0] == 0
            return sealed or not self._log.crashed
        return self._live(data[-offset % UNIT_BYTES :])

    def _live(self, data: bytes) -> bool:
        units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_BYTES)
        at = units["position"]
        return bool(((units["size"] > 0) & (at >= self._log.start) & (at < self._log.checkpoint)).any())

    def extra(self, name: str) -> None:
        """A file that the rebuild did not make."""
        parts = name.split("/")
        if parts[0] == keyindex.DIRECTORY:
            digits = parts[-1].rpartition("-")[2]
            live = digits.isdecimal() and self._log.start <= int(digits) < self._log.checkpoint
        else:
            live = parts[1] not in self._log.deleted and self._any_live(name)
        if live:
            self._find(name, 0, "the log has no messages for this file")
        else:
            self.harmless += 1

    def _any_live(self, name: str) -> bool:
        file = self._disk.open(name)
        try:
            return any(self._live(file.pread(at, STEP_BYTES)) for at in range(0, file.size, STEP_BYTES))
        finally:
            file.close()

    def _find(self, name: str, offset: int, problem: str) -> None:
        self.damage.append(Difference(name, offset, problem, True))


def derived_names(comparing: ComparingDisk) -> list[str]:
    """Files that the store has."""
    disk = comparing.actual
    names = [f"{keyindex.DIRECTORY}/{name}" for name in disk.list(keyindex.DIRECTORY)]
    for topic in disk.list(consumequeue.DIRECTORY):
        for queue in disk.list(f"{consumequeue.DIRECTORY}/{topic}"):
            directory = f"{consumequeue.DIRECTORY}/{topic}/{queue}"
            names += [f"{directory}/{name}" for name in disk.list(directory)]
    return names
