"""Messages, events and states of cores in the words of the Raft paper.

Law: one line per fact, the same words everywhere, nothing that changes from run to run.
Does not know: where the lines go."""

from chaos.coregroup import CoreGroup
from dledger.core import Role
from dledger.messages import NOTHING_PROVED, Kind, Message
from dledger.ready import Event
from model.ids import NodeId


def describe(message: Message) -> str:
    """One message as a line."""
    return f"{message.source}->{message.target} {_said(message)}"


def _said(m: Message) -> str:
    log = f"log ends at {m.position} in term {m.position_term}"
    if m.kind is Kind.PREVOTE:
        return f"prevote request for term {m.term}, {log}"
    if m.kind is Kind.PREVOTE_REPLY:
        return f"prevote {'granted for' if m.granted else 'refused, in'} term {m.term}"
    if m.kind is Kind.VOTE:
        return f"vote request for term {m.term}, {log}{', transfer' if m.flag else ''}"
    if m.kind is Kind.VOTE_REPLY:
        return f"vote {'granted' if m.granted else 'refused'} in term {m.term}"
    if m.kind is Kind.APPEND:
        after = f"after term {m.position_term}"
        return f"append of term {m.term}: [{m.position},{m.end}) {after}, commit {m.commit}"
    if m.kind is Kind.REJECT:
        hint = "no membership" if m.flag else f"term {m.hint_term} ends at {m.hint_end}"
        return f"reject of term {m.term}: not {m.position} after term {m.position_term}; {hint}"
    if m.kind is Kind.HANDOVER:
        return f"hand-over of term {m.term}: log starts at {m.position} after term {m.position_term}"
    if m.kind is Kind.CAMPAIGN_NOW:
        return f"campaign now, term {m.term}"
    if m.kind is Kind.BEAT:
        return f"heartbeat of term {m.term}, commit {m.commit}"
    word = "ack" if m.kind is Kind.ACK else "heartbeat answer"
    proved = "nothing proved" if m.end == NOTHING_PROVED else f"durable {m.position}, proved {m.end}"
    return f"{word} of term {m.term}: {proved}"


def event_line(node: NodeId, event: Event) -> str:
    """One event as a line."""
    fields = "".join(f", {name.replace('_', ' ')} {value}" for name, value in event.fields)
    return f"{node}: {event.name.replace('_', ' ')}{fields}"


def state_line(group: CoreGroup, name: NodeId) -> str:
    """One node as a line."""
    node = group.nodes[name]
    core = node.core
    if core is None:
        return f"{name}: down"
    role = f"{core.role.value} of" if core.role is Role.LEADER else f"{core.role.value} in"
    epochs = " ".join(f"{term}@{at}" for term, at in core.epochs.runs(core.epochs.start, core.end))
    voters = " ".join(sorted(core.membership.voters))
    learners = " ".join(sorted(core.membership.incarnations.keys() - core.membership.voters))
    return (
        f"{name}: {role} term {core.term}, log [{core.epochs.start},{core.end}) terms {epochs or 'none'},"
        f" durable {core.durable}, commit {core.commit}, voters {voters or 'none'}"
        f"{', learners ' + learners if learners else ''}{', fenced' if core.fenced else ''}"
    )
