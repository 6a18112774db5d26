"""Bugs planted on purpose: a test that has never failed has not been tested.

Law: a planted bug is one exact piece of source text replaced by another inside one function, for the length of a
`with`; the text must occur once, so that a bug which no longer fits its code fails loudly instead of planting nothing.
Does not know: how bugs are caught; each only names what must catch it."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Planted(NamedTuple):
    """One bug."""

    name: str
    breaks: str  # the rule or the well-known mistake, by number
    sentence: str  # what the broken code does
    patch: Callable[[], AbstractContextManager[None]]
    caught_by: str  # a transcript, or SEEDS


SEEDS = "seeds"  # caught by random walks, not by a transcript


@contextmanager
def patch_source(function: Callable[..., Any], old: str, new: str) -> Iterator[None]:
    """Run with `old` replaced by `new` in the source of `function`, wherever the function is referred to."""
    assert isinstance(function, FunctionType), function
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {function.__qualname__}"
    module = compile(source.replace(old, new), f"<planted in {function.__qualname__}>", "exec")
    broken = _code_named(function.__name__, module)
    assert broken.co_freevars == function.__code__.co_freevars, "a planted bug cannot add a closure"
    healthy = function.__code__
    function.__code__ = broken
    try:
        yield
    finally:
        function.__code__ = healthy


def _code_named(name: str, module: CodeType) -> CodeType:
    return next(code for code in module.co_consts if isinstance(code, CodeType) and code.co_name == name)


def planted(
    name: str, breaks: str, sentence: str, function: Callable[..., Any], old: str, new: str, caught_by: str
) -> Planted:
    """A bug of one replaced text."""
    return Planted(name, breaks, sentence, lambda: patch_source(function, old, new), caught_by)
