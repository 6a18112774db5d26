"""Memberships and genesis as bytes: the one place where consensus values meet a format.

Law: what cannot be decoded is damage, never a default."""

from collections.abc import Iterable

import msgpack

from dledger.membership import Member, Membership
from model.ids import Incarnation, NodeId
from store.hardstate import DamagedState


def encode_membership(membership: Membership) -> bytes:
    """The body of a membership entry."""
    packed: bytes = msgpack.packb([list(member) for member in membership.members])
    return packed


def decode_membership(body: bytes | memoryview) -> Membership:
    """The inverse of `encode_membership`."""
    try:
        return Membership(
            tuple(Member(NodeId(str(n)), Incarnation(int(i)), bool(v)) for n, i, v in msgpack.unpackb(body))
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DamagedState(f"a membership cannot be parsed: {error}") from error


def first_membership(genesis: Iterable[tuple[NodeId, Incarnation]]) -> Membership:
    """The membership that a group begins with: all are voters."""
    return Membership(tuple(Member(node, incarnation, voter=True) for node, incarnation in genesis))
