"""Work is divided so that every part is on one machine, and inputs that parts share have one owner."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.pipeline.shards import Work, divide, shared

HOUR = 3600.0
SIZES = {key: size for size, key in enumerate("abcdefghxyz", 1)}


def work(name: str, seconds: float = 1, disk: int = 1, *layers: str) -> Work:
    return Work(name=name, seconds=seconds, disk=disk, layers={layer: SIZES[layer] for layer in layers})


def names(shards: list[list[Work]]) -> list[list[str]]:
    return [[each.name for each in shard] for shard in shards]


def test_the_longest_goes_first_and_each_to_the_least_loaded():
    assert names(divide([work("a", 1), work("b", 5), work("c", 4), work("d", 2)], 2)) == [["a", "b"], ["c", "d"]]


def test_more_machines_than_work_leaves_some_empty():
    assert names(divide([work("a"), work("b")], 4)) == [["a"], ["b"], [], []]
    assert divide([], 3) == [[], [], []]


def test_what_shares_a_layer_directly_or_through_another_stays_together():
    pieces = [work("a", 9, 1, "x"), work("b", 1, 1, "y"), work("c", 1, 1, "x", "y"), work("d", 5), work("e", 5)]
    assert names(divide(pieces, 2)) == [["a", "b", "c"], ["d", "e"]]
    assert shared(pieces) == {"x", "y"}
    assert shared(pieces[:2]) == set()


def test_no_disk_is_filled_beyond_its_room_while_another_has_room():
    pieces = [work("a", 9, 6), work("b", 1, 6), work("c", 1, 6)]
    assert names(divide(pieces, 2)) == [["a"], ["b", "c"]]
    assert names(divide(pieces, 3, room=10)) == [["a"], ["b"], ["c"]]
    assert names(divide(pieces, 2, room=10)) == [["a", "c"], ["b"]], (
        "it fits nowhere: least is needed in the first that is equal"
    )


def test_a_group_does_not_take_longer_than_an_equal_share_and_an_hour():
    """The smaller layer is made twice: its pieces are joined last."""
    pieces = [work("a", HOUR, 1, "x"), work("b", HOUR, 1, "x", "y"), work("c", HOUR, 1, "y", "z"), work("d", HOUR, 1, "z")]
    assert names(divide(pieces, 1)) == [["a", "b", "c", "d"]]
    assert names(divide(pieces, 2)) == [["a", "b"], ["c", "d"]]
    assert names(divide(pieces, 4)) == [["a"], ["b"], ["c"], ["d"]]
    short = [work(each.name, HOUR / 4, 1, *each.layers) for each in pieces]
    assert names(divide(short, 4)) == [["a", "b", "c", "d"], [], [], []]


def test_pieces_that_do_not_fit_into_one_group_form_as_few_as_possible():
    pieces = [work(name, HOUR / 2, 1, "x") for name in "abcdef"]
    assert sorted(map(len, divide(pieces, 8))) == [0, 0, 0, 0, 0, 2, 2, 2]


def test_a_group_does_not_need_more_disk_than_a_shard_has_if_the_work_fits_at_all():
    pieces = [work("a", 1, 6, "x"), work("b", 1, 6, "x"), work("c", 1, 6, "x", "y"), work("d", 1, 2, "y")]
    assert names(divide(pieces, 2, room=12)) == [["a", "b"], ["c", "d"]]
    assert names(divide(pieces, 2, room=20)) == [["a", "b", "c", "d"], []]
    assert names(divide(pieces, 2, room=1)) == [["c", "d"], ["a", "b"]], "nothing fits: a group may need an equal share"


PIECES = st.lists(
    st.builds(
        lambda seconds, disk, layers: work("", seconds, disk, *layers),
        st.floats(0, 1e4), st.integers(0, 50), st.sets(st.sampled_from("abcdefgh"), max_size=2),
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=200)
@given(PIECES, st.integers(1, 9), st.one_of(st.none(), st.integers(0, 200)), st.randoms(use_true_random=False))
def test_each_piece_is_in_one_shard_and_each_layer_too_whatever_the_order(pieces, count, room, chance: random.Random):
    """A layer has several shards only if its pieces fit into no group together."""
    named = [Work(name=f"n{number}", seconds=p.seconds, disk=p.disk, layers=p.layers) for number, p in enumerate(pieces)]
    shards = divide(named, count, room)
    assert len(shards) == count
    assert sorted(each.name for shard in shards for each in shard) == sorted(each.name for each in named)
    seconds, disk = sum(each.seconds for each in named), sum(each.disk for each in named)
    if seconds <= HOUR and (room is None or disk <= room):
        for key in "abcdefgh":
            assert sum(any(key in each.layers for each in shard) for shard in shards) <= 1
    mixed = list(named)
    chance.shuffle(mixed)
    assert divide(mixed, count, room) == shards


@pytest.mark.parametrize("count", [2, 4, 8])
def test_shards_of_unshared_work_take_about_as_long_as_each_other(count):
    chance = random.Random(7)
    pieces = [work(f"n{number}", chance.uniform(60, 600)) for number in range(80)]
    load = [sum(each.seconds for each in shard) for shard in divide(pieces, count)]
    assert max(load) <= 1.1 * min(load)
