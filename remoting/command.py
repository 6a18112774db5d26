"""A command: what a frame's header says, whichever codec wrote it. Requests and answers are the same thing.

Law: an answer repeats its request's opaque and codec; opaque is a signed 32-bit number and wraps. An empty remark is
no remark. Does not know: bytes, bodies, what the fields of `ext` mean.
"""

from collections.abc import Mapping
from typing import NamedTuple

from remoting.codes import Codec, LanguageCode

RESPONSE = 1  # flag bit: this is an answer
ONEWAY = 2  # flag bit: no answer is wanted; only Java clients set it
VERSION = 409  # RocketMQ 4.9.8; consumers with SQL filters want at least 232 in the answer to a heartbeat

INT32_SIGN = 1 << 31
INT32_SPAN = 1 << 32


class Command(NamedTuple):
    """A header, decoded."""

    code: int  # of a request: RequestCode, or one we do not know; of an answer: ResponseCode
    language: LanguageCode
    version: int
    opaque: int  # the sender's number for a request; each side of a connection has its own
    flag: int
    remark: str | None
    ext: dict[str, str]
    codec: Codec

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY)


def int32(value: int) -> int:
    """The number a Java int would hold."""
    return (value + INT32_SIGN) % INT32_SPAN - INT32_SIGN


def request(
    code: int,
    opaque: int,
    ext: Mapping[str, str] | None = None,
    *,
    oneway: bool = False,
    language: LanguageCode = LanguageCode.PYTHON,
    codec: Codec = Codec.JSON,
) -> Command:
    flag = ONEWAY if oneway else 0
    return Command(code, language, VERSION, int32(opaque), flag, None, {} if ext is None else dict(ext), codec)


def answer(to: Command, code: int, remark: str | None = None, ext: Mapping[str, str] | None = None) -> Command:
    # Language JAVA: the one value no client has ever stumbled over.
    fields = {} if ext is None else dict(ext)
    return Command(code, LanguageCode.JAVA, VERSION, to.opaque, RESPONSE, remark or None, fields, to.codec)
