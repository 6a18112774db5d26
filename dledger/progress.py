"""What the leader believes of one follower: probe, replicate or hand over; all transitions sit here.

    PROBE ---accepted---> REPLICATE ---refused, or silence---> PROBE
      \\---log start refused---> HANDOVER ---accepted---> REPLICATE

Law: `match` rises only by a position the follower proved in this term and has on disk; a hint moves `next`, never
`match`. Bytes in flight are next - match, and bounded by the core.
Does not know: terms, what is in the log."""

from enum import Enum

from model.ids import Incarnation, LogPosition

BEATS_OF_PATIENCE_MAX = 64  # a slow link must not be fed the same bytes over and over


class Mode(Enum):
    """How the leader sends to this follower; the value is how many heartbeats of silence mean "lost"."""

    PROBE = 2  # one append at a time until the follower accepts a prev
    REPLICATE = 3  # optimistic, pipelined
    HANDOVER = 20  # control state is on its way, and it may be large


class Progress:
    """The leader's belief about one member."""

    __slots__ = (
        "_floor", "_losses", "_moved", "asked", "beat", "heard", "incarnation", "match", "mode", "next", "received",
    )  # fmt: skip

    def __init__(self, incarnation: Incarnation, next_position: LogPosition, now: int) -> None:
        self.incarnation = incarnation
        self.mode = Mode.PROBE
        self.match = LogPosition(0)  # on the follower's disk, proved in this term
        self.received = LogPosition(-1)  # last reported as proved, maybe not on disk: falls when the follower restarts
        self.next = next_position  # HANDOVER: the log start that was offered
        self.asked = False  # a probe or hand-over is outstanding
        self.heard = now  # tick of the last answer: CheckQuorum
        self.beat = 0  # highest heartbeat round answered
        self._moved = now  # tick at which something last changed while something was owed
        self._floor = next_position  # below this the member misses what the group had when this belief began
        self._losses = 0  # since the follower last had everything sent to it

    def accepted(self, durable: LogPosition, proved: LogPosition, now: int) -> bool:
        """The follower reports what it proved in this term; True when `match` rose."""
        if proved > self.received:
            self._moved = now
        self.received = proved
        if proved < 0:
            return False
        # An answer from before the hand-over proves too little: believing it would send the hand-over at every beat.
        if self.mode is Mode.PROBE or (self.mode is Mode.HANDOVER and proved >= self.next):
            self.mode, self.asked = Mode.REPLICATE, False
            self.next = max(proved, self.match)
        elif self.mode is Mode.REPLICATE:
            self.next = max(self.next, proved)
        if self.received >= self.next:
            self._losses = 0
        if durable <= self.match:
            return False
        self.match, self._moved = durable, now
        return True

    def rejected(self, prev: LogPosition, next_position: LogPosition | None, now: int) -> None:
        """The follower refused `prev`; None asks for a hand-over."""
        if self.mode is Mode.HANDOVER or (self.mode is Mode.PROBE and prev != self.next):
            return  # does not answer the outstanding probe: acting on it makes an endless ping-pong
        if self.mode is Mode.REPLICATE and not self.match < prev <= self.next:
            return  # from before the follower proved more
        if next_position is None:
            self.mode = Mode.HANDOVER
        elif (target := max(next_position, self.match)) < prev:
            self.mode, self.next = Mode.PROBE, target
        else:
            return  # nothing moved: the silence timer paces the next try, or both would talk at wire speed for ever
        self.asked, self._moved = False, now

    def handing_over(self, start: LogPosition, commit: LogPosition) -> None:
        """A hand-over at `start` is about to leave, with control state of at most `commit`."""
        self.next, self._floor = start, max(self._floor, commit)

    def caught_up(self, recent: int) -> bool:
        """Whether it has everything from before this belief began, its control state's log, and all but the newest.

        Promoted earlier, a joiner that never received anything can be the one whose vote is needed for ever."""
        return self.match >= max(self._floor, recent)

    def asking(self, now: int) -> None:
        """A probe or a hand-over is about to leave."""
        self.asked, self._moved = True, now

    def sending(self, now: int) -> None:
        """Bytes are about to leave in REPLICATE mode."""
        if self.received >= self.next:
            self._moved = now  # nothing was owed until now

    def check_silence(self, now: int, heartbeat_ticks: int) -> None:
        """Called at each heartbeat: when the follower answers but nothing moves, what was sent is gone."""
        owed = self.asked or (self.mode is Mode.REPLICATE and self.received < self.next)
        answers = now - self.heard <= 2 * heartbeat_ticks  # nobody resends bulk to the dead
        patience = min(self.mode.value << self._losses, BEATS_OF_PATIENCE_MAX)
        if owed and answers and now - self._moved >= patience * heartbeat_ticks:
            self._losses = min(self._losses + 1, 6)
            self.lost(now)

    def lost(self, now: int) -> None:
        """What was sent may be gone (silence, a broken link): begin again from what was proved."""
        self.asked, self._moved = False, now
        if self.mode is Mode.REPLICATE:
            self.mode = Mode.PROBE
            self.next = max(self.received, self.match)
