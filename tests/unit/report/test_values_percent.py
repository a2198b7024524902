"""A share below one is never shown as 100 %."""

import pytest

from envbuild.report.values import percent, with_unit
from envbuild.smoke import stats


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.9999, "99.99 %"),
        (0.99949, "99.9 %"),
        (0.9995, "99.95 %"),
        (1.0, "100.0 %"),
        (0.986, "98.6 %"),
        (0.99999999, "99.999999 %"),
    ],
)
def test_a_limit_just_below_one_is_not_shown_as_one(share: float, words: str) -> None:
    assert (percent(share), with_unit(share, "fraction"), stats.percent(share)) == (words, words, words)


def test_no_digits_are_added_where_none_are_needed() -> None:
    assert (percent(0.59, 0), percent(0.999, 0), percent(1.2, 0)) == ("59 %", "99.9 %", "120 %")
