"""One file of the simulated disk: what reads see, what a crash cannot take, and what is in between.

Law: a pending change reaches the durable bytes by a sync, or in a crash by luck: whole, in part or not at all.
Does not know: names, tickets, who holds the file open.
"""

from random import Random
from typing import NamedTuple

SECTOR_BYTES = 512


class Pending(NamedTuple):
    sequence: int
    offset: int  # of the data, or the new size
    data: bytes | None  # None: the file got another size


class Inode:
    __slots__ = ("dead", "durable", "pending", "visible")

    def __init__(self) -> None:
        self.visible = bytearray()
        self.durable = bytearray()
        self.pending: list[Pending] = []
        self.dead = False

    def resize(self, size: int) -> None:
        grow = size - len(self.visible)
        try:
            if grow > 0:
                self.visible += bytes(grow)
            else:
                del self.visible[size:]
        except BufferError:  # views are out: leave them the old bytes
            self.visible = bytearray(self.visible[:size]) + bytes(max(0, grow))

    def settle(self, pending: Pending) -> None:
        """Let one pending change reach the platter."""
        _, offset, data = pending
        durable = self.durable
        end = offset if data is None else offset + len(data)
        if end > len(durable):
            durable += bytes(end - len(durable))
        if data is None:
            del durable[offset:]
        else:
            durable[offset:end] = data


def suffer(inode: Inode, change: Pending, random: Random) -> None:
    """One unsynced change in a power cut: whole, gone, or (a write) torn."""
    fate = random.randrange(3)
    if fate == 0:
        return
    if fate == 1 or not change.data:
        inode.settle(change)
        return
    offset, data = change.offset, change.data
    if random.random() < 0.5:
        inode.settle(change._replace(data=data[: random.randrange(len(data))]))
        return
    at = 0
    while at < len(data):  # the device writes sectors, in any order
        stop = min(len(data), at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES)
        if random.random() < 0.5:
            inode.settle(change._replace(offset=offset + at, data=data[at:stop]))
        at = stop
