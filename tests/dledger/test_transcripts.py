"""Every transcript says what happens; `--rewrite` writes it anew, and a failing check fails even then."""

from pathlib import Path

import pytest

from chaos.transcript_checks import CheckFailed
from chaos.transcripts import DIRECTORY, run


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.txt")), ids=lambda path: path.stem)
def test_the_transcript_says_what_happens(path: Path, rewrite: bool) -> None:
    text = path.read_text(encoding="utf-8")
    happened = run(text)
    if rewrite:
        path.write_text(happened, encoding="utf-8")
    else:
        assert happened == text


def test_a_failing_check_is_not_blessed_by_a_rewrite() -> None:
    with pytest.raises(CheckFailed, match="check leader 2"):
        run("# A race.\ngroup 1 2 3\nelect 1 with 2\ncheck leader 2\n")


def test_a_transcript_without_a_reason_or_without_a_check_is_refused() -> None:
    with pytest.raises(AssertionError, match="comment"):
        run("group 1 2 3\ncheck no leader\n")
    with pytest.raises(AssertionError, match="checks its outcome"):
        run("# A race.\ngroup 1 2 3\n")


def test_what_is_written_is_read_again() -> None:
    once = run("# A race.\ngroup 1 2 3\nelect 1 with 2\n\n# Later.\ndeliver\ncheck leader 1\n")
    assert run(once) == once
