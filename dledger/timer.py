"""When a node stops waiting for a leader, and how long it refuses to help to depose one.

Law: the lease that refuses votes is fed by the leader's messages only, and ended early only by the own broken link to
that leader: others may see it break while it lives. Time is ticks, handed in.
Does not know: terms, votes, who the leader is."""

from random import Random

from dledger.boot import CoreConfig


class ElectionTimer:
    """Ticks since the last sign of a leader, against a random timeout."""

    __slots__ = ("_config", "_elapsed", "_hasty", "_heard", "_random", "_timeout", "now")

    def __init__(self, config: CoreConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self.now = 0
        self._elapsed = 0
        self._hasty = False  # the link to the leader broke: short delays until a leader is heard
        self._heard: int | None = None  # tick of the leader's last message: the lease
        self.rearm()

    @property
    def leased(self) -> bool:
        """Whether a leader was heard so recently that it must be presumed alive."""
        return self._heard is not None and self.now - self._heard < self._config.election_ticks_min

    def tick(self) -> bool:
        """One unit of time has passed; True when the wait for a leader is over."""
        self.now += 1
        self._elapsed += 1
        return self._elapsed >= self._timeout

    def rearm(self, *, campaigning: bool = False) -> None:
        """Wait again, with a new random timeout; a campaign needs time for its own disk and a round trip."""
        self._elapsed = 0
        low, high = self._config.election_ticks_min, self._config.election_ticks_max
        if self._hasty:
            high = self._config.link_loss_ticks_max
            low = max(high // 2, 1) if campaigning else 1
        self._timeout = low + self._random.randrange(max(high - low, 0) + 1)

    def wait_on(self) -> None:
        """Somebody deserves the rest of a full wait (a vote was granted)."""
        self._elapsed = 0

    def leader_heard(self) -> None:
        """A message of the leader arrived."""
        self._elapsed = 0
        self._heard = self.now
        if self._hasty:
            self._hasty = False
            self.rearm()

    def leader_forgotten(self) -> None:
        """A higher term exists: the leader that was heard is none any more."""
        self._heard = None

    def leader_link_lost(self) -> None:
        """The own link to the leader broke."""
        self._heard = None
        self._hasty = True
        self.rearm()

    def leading(self) -> None:
        """This node leads: what broke before is history."""
        self._hasty = False
