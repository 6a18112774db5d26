"""Letters in words, for `dlmq sim --trace`.

Law: a line says what a person needs to follow a run with the Raft paper at hand. Does not know: what happens next."""

from broker.ports import Hello, Letter, RepairAsk, RepairGive
from dledger.messages import Kind, Message


def describe(letter: Letter) -> str:
    """One letter, without its target."""
    body = letter.body
    if isinstance(body, Message):
        return f"{body.kind.name} from {letter.source}, term {body.term}: {_words(body)}"
    if isinstance(body, Hello):
        return f"HELLO from {letter.source}: {'empty' if body.genesis is None else 'has a group'}"
    if isinstance(body, RepairAsk):
        return f"REPAIR_ASK from {letter.source} for {body.position}"
    assert isinstance(body, RepairGive)
    return f"REPAIR_GIVE from {letter.source} at {body.position}: {len(body.payload)} bytes, commit {body.commit}"


def _words(message: Message) -> str:
    kind = message.kind
    if kind in (Kind.PREVOTE, Kind.VOTE):
        return f"log ends at {message.position} in term {message.position_term}{', transfer' if message.flag else ''}"
    if kind in (Kind.PREVOTE_REPLY, Kind.VOTE_REPLY):
        return "yes" if message.granted else "no"
    if kind is Kind.APPEND:
        return (
            f"[{message.position}, {message.end}) after term {message.position_term}, "
            f"runs {list(message.runs)}, commit {message.commit}"
        )
    if kind in (Kind.ACK, Kind.BEAT_REPLY):
        return f"durable {message.position}, proved {message.end}"
    if kind is Kind.REJECT:
        return (
            f"not after {message.position} in term {message.position_term}; own end {message.end}, "
            f"epoch {message.hint_term} ends at {message.hint_end}{', fresh' if message.flag else ''}"
        )
    if kind is Kind.BEAT:
        return f"commit {message.commit}, beat {message.beat}"
    if kind is Kind.HANDOVER:
        return f"log starts at {message.position} after term {message.position_term}, control at {message.end}"
    return "campaign now"
