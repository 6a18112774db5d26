"""A Disk that stops the process before its n-th change, for "crash at every step" tests.

`replace` is taken apart into its steps, so that a crash can fall between them."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from chaos.simdisk import SimDisk
from store.disk import File, SyncTicket

CHANGES = ("remove", "remove_tree", "rename", "sync_dir", "sync")


class PowerCut(Exception):
    pass


class _CountingFile:
    def __init__(self, disk: "PowerCutDisk", file: File) -> None:
        self._disk = disk
        self.inner = file

    def write_at(self, offset: int, data: Any) -> None:
        self._disk.step()
        self.inner.write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._disk.step()
        self.inner.truncate(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class PowerCutDisk:
    """Passes everything to a SimDisk; `left` changes from now on succeed, the next one is a power cut."""

    def __init__(self, inner: SimDisk, left: int) -> None:
        self.inner = inner
        self.left = left

    def step(self) -> None:
        if self.left == 0:
            raise PowerCut
        self.left -= 1

    def open(self, name: str, *, mapped: bool = False) -> Any:
        if not self.inner.exists(name):
            self.step()
        return _CountingFile(self, self.inner.open(name, mapped=mapped))

    def replace(self, name: str, data: bytes) -> None:
        file = self.open(name + ".tmp")
        file.truncate(0)
        file.write_at(0, data)
        self.sync(self.ticket([file]))
        self.rename(name + ".tmp", name)
        self.sync_dir(name.rpartition("/")[0])

    def ticket(self, files: Iterable[Any]) -> SyncTicket:
        return self.inner.ticket([file.inner for file in files])

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.inner, name)
        if name not in CHANGES:
            return operation

        def counted(*arguments: Any) -> Any:
            self.step()
            return operation(*arguments)

        return counted


def crash_everywhere(prepare: Callable[[SimDisk], None], change: Callable[[Any], None], seeds: int = 12) -> Any:
    """Yields a crashed SimDisk for each step of `change` and each seed; ends when `change` runs through."""
    step = 0
    while True:
        finished = False
        for seed in range(seeds):
            sim = SimDisk(Random(seed * 1000 + step))
            prepare(sim)
            try:
                change(PowerCutDisk(sim, step))
                finished = True
            except PowerCut:
                pass
            sim.crash()
            yield sim, finished
        if finished:
            return
        step += 1
