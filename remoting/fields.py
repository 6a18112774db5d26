"""How a typed header is declared, read from a command's ext fields, and written back.

    class GetOffset(NamedTuple):              {"topic": "orders", "queueId": "3"}
        topic: str                    <->
        queue_id: Int

Law: a header is declared once. A field's name in camel case is its name on the wire, unless `Wire` says otherwise; a
field without a default is required. Fields nobody declared are ignored, and fields that are None are not written.
Numbers are as wide as Java's, so that whatever was read also fits where it will be stored.
Does not know: codecs, or what any header is for.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from model.errors import Refused, ResponseCode

H = TypeVar("H", bound=tuple[Any, ...])
Convert: TypeAlias = Callable[[str], Any]

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


class HeaderIllegal(Refused):
    """A request lacks a field, or a field is not of its type."""

    code = ResponseCode.SYSTEM_ERROR  # what RocketMQ answers
    do = "mend the request; sending it again unchanged will fail again"


def to_int(text: str) -> int:
    # Digits first: int() alone would also take blanks and underscores.
    if text.isdigit() or (text[:1] == "-" and text[1:].isdigit()):
        value = int(text)
        if -INT_MAX - 1 <= value <= INT_MAX:
            return value
    raise ValueError


def to_long(text: str) -> int:
    if text.isdigit() or (text[:1] == "-" and text[1:].isdigit()):
        value = int(text)
        if -LONG_MAX - 1 <= value <= LONG_MAX:
            return value
    raise ValueError


def to_bool(text: str) -> bool:
    """As Java does: whatever is not true is false."""
    return text == "true" or text.lower() == "true"


Int: TypeAlias = Annotated[int, to_int]
Long: TypeAlias = Annotated[int, to_long]


class Wire(NamedTuple):
    """A name on the wire that camel case does not give."""

    name: str


class Plan(NamedTuple):
    """A header class, prepared: one row per field, in the order of the class."""

    names: tuple[str, ...]
    required: int  # so many fields, the first, have no default
    defaults: tuple[Any, ...]  # of the others
    converts: tuple[tuple[int, Convert], ...]  # for the fields that are not text


TYPE_NAMES: dict[Convert, str] = {to_int: "32-bit number", to_long: "64-bit number", to_bool: "truth value"}


def decode(cls: type[H], ext: Mapping[str, str]) -> H:
    """The typed header; HeaderIllegal names the field that is missing or wrong."""
    return decode_by(plan_of(cls), cls, ext)


def encode(header: tuple[Any, ...]) -> dict[str, str]:
    return encode_by(plan_of(type(header)), header)


def decode_by(plan: Plan, cls: type[H], ext: Mapping[str, str]) -> H:
    """`decode` with the names of this plan: for a header that travels under two sets of names."""
    values: list[Any] = list(map(ext.get, plan.names))
    if None in values:
        _fill(plan, values)
    try:
        for i, convert in plan.converts:
            if type(value := values[i]) is str:  # not a default
                values[i] = convert(value)
    except ValueError:
        raise HeaderIllegal(f"field {plan.names[i]} is {value!r:.40}, not a {TYPE_NAMES[convert]}") from None
    return tuple.__new__(cls, values)


def encode_by(plan: Plan, header: tuple[Any, ...]) -> dict[str, str]:
    ext = {}
    for name, value in zip(plan.names, header, strict=True):
        if type(value) is str:
            ext[name] = value
        elif type(value) is bool:
            ext[name] = "true" if value else "false"
        elif value is not None:
            ext[name] = str(int(value))
    return ext


@cache  # bounded: there are only so many header classes
def plan_of(cls: type[tuple[Any, ...]]) -> Plan:
    defaults: dict[str, Any] = cls._field_defaults  # type: ignore[attr-defined]  # every header is a NamedTuple
    names, converts = [], []
    for i, (name, hint) in enumerate(get_type_hints(cls, include_extras=True).items()):
        kinds = [hint] if get_origin(hint) is Annotated else [each for each in get_args(hint) if each is not NoneType]
        kind = kinds[0] if kinds else hint
        notes = getattr(kind, "__metadata__", ())
        wire = next((note.name for note in notes if isinstance(note, Wire)), None)
        names.append(wire or camel_case(name))
        base = get_args(kind)[0] if notes else kind
        convert = next((note for note in notes if note in TYPE_NAMES), to_bool if base is bool else None)
        assert convert is not None or base is str, f"{cls.__name__}.{name}: {hint}"
        if convert is not None:
            converts.append((i, convert))
    return Plan(tuple(names), len(names) - len(defaults), tuple(defaults.values()), tuple(converts))


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _fill(plan: Plan, values: list[Any]) -> None:
    for i in range(plan.required):
        if values[i] is None:
            raise HeaderIllegal(f"the required field {plan.names[i]} is missing")
    for i, default in enumerate(plan.defaults, plan.required):
        if values[i] is None:
            values[i] = default
