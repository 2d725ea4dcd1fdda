"""The slots of the loader's ring: who holds them, and when they come back."""

from __future__ import annotations

import numpy as np
import pytest

from fastdata.loader.ring import KEPT, PAGE, Ring
from fastdata.sharedmem import SharedBlock

DEPTH = 3


@pytest.fixture
def ring():
    with SharedBlock(PAGE) as block:
        yield Ring(block, 1, 100, DEPTH)


def test_slots_do_not_overlap_and_begin_at_pages(ring: Ring) -> None:
    places = [ring.place(slot) for slot in (ring.take() for _ in range(DEPTH + KEPT)) if slot is not None]
    assert len(set(places)) == DEPTH + KEPT
    assert all(place % PAGE == 0 and place >= PAGE for place in places)
    assert min(np.diff(sorted(places))) >= 100
    assert ring.take() is None


def test_a_lent_slot_comes_back_with_the_last_view(ring: Ring) -> None:
    slot = ring.take()
    assert slot is not None
    data = ring.hand_out(slot, working=DEPTH)
    view = data[10:20].reshape(2, 5)
    del data
    assert ring.take() != slot
    del view
    assert ring.take() == slot


def test_past_the_bound_batches_are_copies(ring: Ring) -> None:
    kept = []
    for number in range(50):
        slot = ring.take()
        assert slot is not None  # never a dead end
        data = ring.hand_out(slot, working=0)
        data[:] = number
        kept.append(data)
    assert [set(data.tolist()) for data in kept] == [{number} for number in range(50)]
    assert sum(data.flags.owndata for data in kept) >= 50 - DEPTH - KEPT


def test_reclaiming_frees_all_but_what_is_lent_or_at_work(ring: Ring) -> None:
    slots = [ring.take() for _ in range(4)]
    lent = ring.hand_out(1, working=DEPTH)
    ring.reclaim({slots[2]})
    assert [ring.take() for _ in range(2)] == [0, 3]
    del lent
