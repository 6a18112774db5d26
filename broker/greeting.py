"""What nodes say to each other besides Raft: hello, and bytes for a damaged one.

Law: every node answers an empty one truthfully; a leader takes a member that returns under a new incarnation back as
a learner; whoever has verified bytes gives them, damaged or not.
Does not know: elections; what a repaired or formed node does next."""

from typing import TYPE_CHECKING

from broker.config import BrokerConfig
from broker.fencing import Forming, Repairing
from broker.ports import Hello, Letter, Peers, Phase, RepairAsk, RepairGive
from broker.repair import entries_from
from dledger.membership import Change, ChangeKind
from model.ids import Incarnation, LogPosition, NodeId
from store.disk import Disk

if TYPE_CHECKING:
    from broker.replica import Replica

HELLO_EVERY_MS = 200  # an empty, unknown or damaged node makes itself heard


class Greeter:
    """Speaks for a replica before and beside consensus."""

    def __init__(self, replica: "Replica", config: BrokerConfig, disk: Disk, peers: Peers) -> None:
        self._replica = replica
        self._disk = disk
        self._peers = peers
        self._voters = {NodeId(voter) for voter in config.node.voters}
        self._segment_bytes = config.store.segment_bytes
        self._every_ticks = max(1, HELLO_EVERY_MS // config.raft.tick_ms)
        self._ticks = 0
        self.strangers: dict[NodeId, Incarnation] = {}  # who said hello and is not a member under that incarnation

    def tick(self, fence: Forming | Repairing | None) -> None:
        """One tick has passed: time to ask for bytes, or to say that nobody knows us?"""
        self._ticks += 1
        if self._ticks % self._every_ticks:
            return
        replica, core = self._replica, self._replica.core
        if isinstance(fence, Repairing):
            for peer in fence.whom_to_ask(replica.node):
                self._mail(peer, RepairAsk(fence.position))
        elif replica.phase is Phase.FORMING or core is not None:
            known = core.membership.incarnations if core is not None else {}
            if known.get(replica.node) != replica.incarnation:
                leader = core.leader if core is not None else None  # perhaps a node that our configuration never named
                for peer in sorted(self._voters | set(known) | ({leader} if leader is not None else set())):
                    self._mail(peer, self._hello(fence, answer_wanted=replica.phase is Phase.FORMING))

    def heard(self, fence: Forming | Repairing | None, letter: Letter, hello: Hello) -> None:
        """Somebody says hello: answer, and take a wiped member back."""
        replica, core = self._replica, self._replica.core
        if hello.answer_wanted:
            if replica.phase in (Phase.FORMING, Phase.RUNNING):
                self._mail(letter.source, self._hello(fence, answer_wanted=False))
            return
        if core is None or core.membership.incarnations.get(letter.source) == letter.incarnation:
            return
        self.strangers[letter.source] = letter.incarnation
        if core.serving and letter.source in core.membership.incarnations:
            change = Change(ChangeKind.ADD_LEARNER, letter.source, letter.incarnation)
            replica.change_membership(change, lambda accepted: None)

    def give(self, fence: Forming | Repairing | None, asker: NodeId, position: LogPosition) -> None:
        """Entries for a damaged node: whatever verifies here."""
        replica, core = self._replica, self._replica.core
        if isinstance(fence, Repairing):
            self._mail(asker, fence.give(position))
        elif core is not None and replica.phase is Phase.RUNNING:
            payload = entries_from(self._disk, self._segment_bytes, position, core.durable)
            self._mail(asker, RepairGive(position, core.commit, payload))

    def _genesis(self) -> tuple[tuple[NodeId, Incarnation], ...] | None:
        replica = self._replica
        if replica.phase is Phase.RUNNING and replica.state.genesis:
            return tuple((NodeId(node), Incarnation(number)) for node, number in replica.state.genesis)
        return None

    def _hello(self, fence: Forming | Repairing | None, *, answer_wanted: bool) -> Hello:
        return Hello(self._genesis(), fence.seen if isinstance(fence, Forming) else (), answer_wanted)

    def _mail(self, target: NodeId, body: Hello | RepairAsk | RepairGive) -> None:
        if target != self._replica.node:
            self._peers.send(Letter(self._replica.node, target, self._replica.incarnation, body))
