"""What all tests share: one Hypothesis profile and the --rewrite flag."""

import pytest
from hypothesis import settings

# A deadline measures the machine, not the code; the same examples each run keep a red run reproducible elsewhere.
settings.register_profile("house", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write expected files anew instead of comparing them")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether transcripts and generated documents are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite"))
