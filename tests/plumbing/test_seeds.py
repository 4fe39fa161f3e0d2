"""Random numbers are a function of the stream and the position."""

import random

import numpy as np
import pytest
import torch

from principal_attention.errors import InputError
from principal_attention.plumbing.seeds import STREAMS, seed_all, words


def test_every_stream_has_a_number_of_its_own_that_stays():
    """Stream numbers determine the results of a seed: new ones may be added, existing ones must not change."""
    assert len(set(STREAMS.values())) == len(STREAMS)
    expected = {
        "augmentation": 1, "order": 2, "mixing": 3, "initialisation": 4, "step": 5, "noise": 6, "corruption": 7,
        "attack": 8, "null": 9, "bootstrap": 10, "swap": 11, "sampling": 12,
    }  # fmt: skip
    assert expected.items() <= STREAMS.items()
    assert words("noise", 3, 17) == [1966124637, 965315056]


def test_no_two_positions_share_their_numbers():
    """NumPy pads short seeds with zeros, so (5,) and (5, 0) would be equal without their length."""
    places = [(stream, *at) for stream in STREAMS for at in ((), (5,), (5, 0), (5, 0, 0), (0, 5), (5, 1))]
    drawn = [tuple(words(*place)) for place in places]
    assert len(set(drawn)) == len(places)


def test_an_unknown_stream_is_refused():
    with pytest.raises(InputError, match="there is no random stream 'luck'; expected one of augmentation"):
        words("luck", 0)


def test_all_three_generators_are_set():
    def draw(*place):
        seed_all(*place)
        return random.random(), np.random.rand(), torch.rand(()).item()

    places = [(stream, seed, step) for stream in ("augmentation", "step") for seed in (0, 1) for step in (0, 1)]
    for each in zip(*(draw(*place) for place in places), strict=True):
        assert len(set(each)) == len(places)
    assert draw("step", 0, 1) == draw("step", 0, 1)
