"""Random numbers as a pure function of (seed, epoch, index, occurrence).

Nothing here has state, so a sample's numbers depend neither on the number of workers nor on what was drawn before.
Guarantees: the parts are hashed as a sequence, not added up (seed 0, item 1 is not seed 1, item 0); for one seed, epoch
and stream, distinct indices give distinct keys, so that sorting by key is a permutation; a batch and a single index
give the same bits; only 64-bit integer arithmetic is used, so bits depend on neither platform nor numpy's version.

The mixing is SplitMix64's: G. L. Steele, D. Lea, C. H. Flood, "Fast Splittable Pseudorandom Number Generators",
OOPSLA 2014, with the finaliser that they call `mix64variant13` (D. Stafford, "Better Bit Mixing", 2011).

    key  = 0;  for each part:  key = mix64((key ^ part) + GAMMA)      the parts are seed, stream, epoch, index,
                                                                      then occurrence and view, if one is not 0
    draw = mix64(key + (number + 1) * GAMMA)                          so a key is the start of a SplitMix64 generator

Limits: this is not a cryptographic hash, and two unrelated keys collide with the probability of 64-bit numbers.
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdata.checks import integer, refuse

_MASK = 0xFFFFFFFFFFFFFFFF
# The odd integer nearest to 2**64 / golden ratio: SplitMix64's step from one state to the next.
_GAMMA = 0x9E3779B97F4A7C15
# Shifts and multipliers of Stafford's variant 13, found by search for the best avalanche.
_SHIFT_1, _MULTIPLIER_1 = 30, 0xBF58476D1CE4E5B9
_SHIFT_2, _MULTIPLIER_2 = 27, 0x94D049BB133111EB
_SHIFT_3 = 31
# A float64 holds 53 bits: the upper 53 of a draw, as a fraction, are uniform on [0, 1) and exact.
_FRACTION_SHIFT, _FRACTION = 11, 2.0**-53
# The start values for hashing integers that are not 64-bit words, by sign; any two different values would do.
_WIDE_POSITIVE, _WIDE_NEGATIVE = 1, 2


def key(*parts: SupportsIndex) -> int:
    """The 64-bit hash of a sequence of integers.

    Any Python integer is allowed (`word` reduces it to 64 bits). `key(1)`, `key(1, 0)` and `key(0, 1)` all differ.

    Raises:
        OptionError: a part is not an integer.
    """
    value = 0
    for part in parts:
        value = _mix((value ^ word(part)) + _GAMMA)
    return value


def word(value: SupportsIndex) -> int:
    """An integer as one 64-bit word: 0 to 2**64 - 1 stay as they are, all others are hashed down to 64 bits.

    So -1 and 2**64 - 1, or n and n + 2**64, are different seeds.

    Raises:
        OptionError: the value is not an integer.
    """
    try:
        number = operator.index(value)  # True is 1 here: it may be a part of a key
    except TypeError:
        number = integer("a seed, epoch or index", value)
    if 0 <= number <= _MASK:
        return number
    folded = _mix(_WIDE_NEGATIVE if number < 0 else _WIDE_POSITIVE)
    magnitude = abs(number)
    while magnitude:
        folded = _mix((folded ^ (magnitude & _MASK)) + _GAMMA)
        magnitude >>= 64
    return folded


def keys(
    seed: int, epoch: int, indices: ArrayLike, *, stream: int = 0, occurrences: ArrayLike = 0, view: int = 0
) -> NDArray[np.uint64]:
    """One 64-bit key per index: `keys(seed, epoch, [i])[0] == key(seed, stream, epoch, i)`.

    Args:
        seed: any integer.
        epoch: any integer.
        indices: sample indices, integers from 0.
        stream: the purpose of the numbers; each purpose (order, augmentation, ...) has its own stream, so that its
            numbers are unrelated to the others'.
        occurrences: how many times each index has come before in the epoch: one more part of the key, left out if 0.
        view: which of several versions of one sample: a part after the occurrence, left out if 0.

    Returns:
        Keys in the shape of `indices` (a single index gives an array of one), distinct for distinct indices.

    Raises:
        OptionError: a part is not an integer, or an index is negative.
    """
    given = np.atleast_1d(np.asarray(indices))
    if given.size == 0:
        return np.empty(given.shape, np.uint64)
    if given.dtype.kind not in "iu":
        refuse("indices", "an array of integers", given)
    if given.dtype.kind == "i" and given.min() < 0:
        integer("each of the indices", int(given.min()), 0)
    state = np.array(given, np.uint64)
    state ^= np.uint64(key(seed, stream, epoch))
    state += np.uint64(_GAMMA)
    state = _mix_in_place(state)
    again = np.broadcast_to(np.asarray(occurrences).astype(np.uint64), state.shape)
    if view:
        return _folded(_folded(state, again), np.uint64(view))
    return np.where(again > 0, _folded(state, again), state) if again.any() else state


def _folded(keys: NDArray[np.uint64], part: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """The keys with one more part."""
    return _mix_in_place((keys ^ part) + np.uint64(_GAMMA))


def bits(keys: NDArray[np.uint64], number: int = 0) -> NDArray[np.uint64]:
    """The draw with this number (0, 1, 2, ...) of every key: 64 random bits each."""
    return _mix_in_place(keys + np.uint64((number + 1) * _GAMMA & _MASK))


def uniform(keys: NDArray[np.uint64], count: int, *, first: int = 0) -> NDArray[np.float64]:
    """Draws `first` to `first + count - 1` of every key as floats in [0, 1); the draws are the last axis."""
    steps = np.array([(first + number + 1) * _GAMMA & _MASK for number in range(count)], np.uint64)
    drawn = _mix_in_place(keys[..., np.newaxis] + steps)
    drawn >>= np.uint64(_FRACTION_SHIFT)
    return drawn.astype(np.float64) * _FRACTION


def draw(key: int, number: int) -> float:
    """The draw with this number of one key, as `uniform` returns it, without arrays."""
    return (_mix(key + (number + 1) * _GAMMA) >> _FRACTION_SHIFT) * _FRACTION


def _mix(state: int) -> int:
    state &= _MASK
    state = ((state ^ (state >> _SHIFT_1)) * _MULTIPLIER_1) & _MASK
    state = ((state ^ (state >> _SHIFT_2)) * _MULTIPLIER_2) & _MASK
    return state ^ (state >> _SHIFT_3)


def _mix_in_place(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # Arrays of unsigned integers wrap silently, and every step is one to one, so distinct states stay distinct.
    state ^= state >> np.uint64(_SHIFT_1)
    state *= np.uint64(_MULTIPLIER_1)
    state ^= state >> np.uint64(_SHIFT_2)
    state *= np.uint64(_MULTIPLIER_2)
    state ^= state >> np.uint64(_SHIFT_3)
    return state
