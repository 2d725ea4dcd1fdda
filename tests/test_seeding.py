"""The counter hash: fixed bits, sequence not sum, batch equals single, distinct, and roughly uniform."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata import seeding
from fastdata.errors import OptionError

ANY_INT = st.integers(-(2**200), 2**200)
WORDS = st.integers(0, 2**64 - 1)
FROZEN_KEYS = [2391539541053276776, 3048674281419798293, 5729490520049822839]
FROZEN_FLOATS = [[0.7246824729260383, 0.5107161376496853]]


def test_splitmix64_reference_values() -> None:
    # The first outputs of Vigna's public-domain splitmix64.c started at 1234567.
    state = np.array([1234567], np.uint64)
    drawn = [int(seeding.bits(state, number)[0]) for number in range(3)]
    assert drawn == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_bits_are_frozen() -> None:
    # A change here changes every user's order and augmentation for a given seed.
    assert seeding.key(0) == 0xE220A8397B1DCDAF
    assert seeding.keys(0, 0, [0, 1, 2]).tolist() == FROZEN_KEYS
    assert seeding.uniform(seeding.keys(7, 3, [5]), 2).tolist() == FROZEN_FLOATS


@given(seed=ANY_INT, epoch=ANY_INT, stream=ANY_INT, indices=st.lists(WORDS, min_size=1, max_size=20))
def test_batch_equals_single(seed: int, epoch: int, stream: int, indices: list[int]) -> None:
    batch = seeding.keys(seed, epoch, np.array(indices, np.uint64), stream=stream)
    assert batch.tolist() == [seeding.key(seed, stream, epoch, index) for index in indices]
    for number in range(2):
        single = [int(seeding.bits(batch[i : i + 1], number)[0]) for i in range(len(indices))]
        assert seeding.bits(batch, number).tolist() == single
    floats = seeding.uniform(batch, 3)
    assert floats[:, 1:].tolist() == seeding.uniform(batch, 2, first=1).tolist()
    assert floats[:, 0].tolist() == [(bits >> 11) / 2**53 for bits in seeding.bits(batch).tolist()]


@given(first=ANY_INT, second=ANY_INT)
def test_any_two_seeds_differ(first: int, second: int) -> None:
    assert (seeding.key(first) == seeding.key(second)) == (first == second)
    assert (seeding.key(first, second) == seeding.key(second, first)) == (first == second)


def test_neighbours_and_wide_seeds_are_distinct() -> None:
    seeds = [n + shift for n in range(-3, 4) for shift in (0, 2**32, 2**63, 2**64, 2**128, -(2**64))]
    assert len({seeding.key(seed) for seed in seeds}) == len(set(seeds))
    grid = {seeding.key(seed, 0, epoch, index) for seed in range(30) for epoch in range(30) for index in range(30)}
    assert len(grid) == 30**3


def test_a_sequence_is_not_a_sum() -> None:
    assert seeding.keys(0, 0, [1])[0] != seeding.keys(1, 0, [0])[0]
    assert seeding.keys(0, 0, [1])[0] != seeding.keys(0, 1, [0])[0]
    assert len({seeding.key(), seeding.key(0), seeding.key(0, 0), seeding.key(0, 0, 0)}) == 4


def test_indices_give_distinct_keys_and_so_a_permutation() -> None:
    keys = seeding.keys(0, 0, np.arange(200_000))
    assert len(np.unique(keys)) == 200_000
    assert not np.array_equal(np.argsort(keys), np.argsort(seeding.keys(0, 1, np.arange(200_000))))


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (0, 1), (2**64 - 1, 10**6), (-1, 0)])
def test_roughly_uniform(seed: int, epoch: int) -> None:
    n = 100_000
    floats = seeding.uniform(seeding.keys(seed, epoch, np.arange(n)), 2)
    assert floats.min() >= 0.0
    assert floats.max() < 1.0
    # Standard errors: mean 0.29 / sqrt(n), a bin's count sqrt(n / 100); five of them are never seen by chance.
    assert abs(floats.mean(axis=0) - 0.5).max() < 5 * 0.29 / n**0.5
    for column in floats.T:
        counts = np.histogram(column, bins=100, range=(0, 1))[0]
        assert abs(counts - n / 100).max() < 5 * (n / 100) ** 0.5
    assert abs(np.asarray(np.corrcoef(floats.T))[0, 1]) < 5 / n**0.5
    assert abs(np.asarray(np.corrcoef(floats[:-1, 0], floats[1:, 0]))[0, 1]) < 5 / n**0.5


def test_every_input_bit_moves_half_of_the_output() -> None:
    for part in range(3):
        for bit in range(64):
            changed = [0, 0, 0]
            changed[part] = 1 << bit
            flipped = (seeding.key(*changed) ^ seeding.key(0, 0, 0)).bit_count()
            assert 12 <= flipped <= 52  # 32 expected, standard deviation 4


def test_streams_are_unrelated() -> None:
    indices = np.arange(10_000)
    first, second = (seeding.uniform(seeding.keys(0, 0, indices, stream=s), 1)[:, 0] for s in (0, 1))
    assert abs(np.asarray(np.corrcoef(first, second))[0, 1]) < 0.05


def test_shapes_and_types_of_indices() -> None:
    expected = seeding.keys(1, 2, [3, 4])
    for dtype in ("int8", "uint16", "int32", "int64", "uint64", ">i8"):
        given_indices = np.array([3, 4], dtype)
        assert np.array_equal(seeding.keys(1, 2, given_indices), expected)
        assert given_indices.tolist() == [3, 4]
    assert seeding.keys(1, 2, 3).tolist() == [expected[0]]
    assert seeding.bits(seeding.keys(1, 2, 3)).shape == (1,)
    assert seeding.keys(1, 2, []).shape == (0,)
    assert seeding.uniform(seeding.keys(1, 2, [[3, 4]]), 5).shape == (1, 2, 5)
    assert seeding.key(np.int64(5), True) == seeding.key(5, 1)


@pytest.mark.parametrize("bad", [1.5, "1", None])
def test_a_seed_that_is_not_an_integer(bad: object) -> None:
    with pytest.raises(OptionError, match=r"must be an integer, not"):
        seeding.keys(bad, 0, [0])  # type: ignore[arg-type]


def test_bad_indices() -> None:
    with pytest.raises(OptionError, match="each of the indices must be an integer of at least 0, not -1"):
        seeding.keys(0, 0, [0, -1])
    with pytest.raises(OptionError, match="indices must be an array of integers, not array"):
        seeding.keys(0, 0, [0.5])


def test_torch_is_not_imported() -> None:
    script = "import sys, fastdata.seeding; sys.exit('torch' in sys.modules or 'cv2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@given(
    seed=ANY_INT, epoch=ANY_INT, stream=ANY_INT, view=st.integers(0, 3),
    samples=st.lists(st.tuples(WORDS, st.integers(0, 2**63 - 1) | st.integers(0, 2)), min_size=1, max_size=20),
)  # fmt: skip
def test_occurrence_and_view_are_further_parts(
    seed: int, epoch: int, stream: int, view: int, samples: list[tuple[int, int]]
) -> None:
    """Left out if they are 0."""
    indices, occurrences = np.array([s[0] for s in samples], np.uint64), np.array([s[1] for s in samples], np.int64)
    found = seeding.keys(seed, epoch, indices, stream=stream, occurrences=occurrences, view=view).tolist()
    for one, (index, occurrence) in zip(found, samples, strict=True):
        parts = (occurrence, view) if view else (occurrence,) if occurrence else ()
        assert one == seeding.key(seed, stream, epoch, index, *parts)
