"""The plan of batches: the same examples and random numbers for any division of a step."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import pytest

from principal_attention.errors import InputError
from principal_attention.plumbing.processes import Place
from principal_attention.training.batches import BatchPlan, evaluation_loader, training_loader


@dataclass
class Numbers:
    """Dataset of numbers, so that the output of a loader shows the examples used."""

    count: int
    streaming: bool = False

    @property
    def split(self) -> Any:
        rows = datasets.Dataset.from_dict({"x": list(range(self.count))})
        return type("Split", (), {"streaming": self.streaming, "rows": rows.to_iterable_dataset()})

    def __len__(self):
        return self.count

    def __getitem__(self, key):
        return key

    def prepare(self, row, number, draw):
        return (row["x"], draw)


def loaded(plan, steps, world=1, accumulate=1, **options):
    """Examples of each process, by step and part."""
    given = dict(accumulate=accumulate, workers=0, stack=tuple) | options
    examples = given.pop("examples", Numbers(plan.examples))
    loaders = [training_loader(examples, plan, steps, place=Place(r, world), **given) for r in range(world)]
    # torch turns the tuples of a stream's batches into lists on their way
    return [[b if isinstance(b, Exception) else [tuple(key) for key in b] for b in loader] for loader in loaders]


def test_an_epoch_has_each_example_once_in_another_order():
    plan = BatchPlan(examples=20, batch_size=4, seed=1)
    first, second = ([key for step in range(e * 5, e * 5 + 5) for key in plan.shard(step, 0, 1)] for e in (0, 1))
    assert sorted(index for index, _ in first) == sorted(index for index, _ in second) == list(range(20))
    assert [index for index, _ in first] != [index for index, _ in second]
    draws = [draw for _, draw in first + second]
    assert len(set(draws)) == 40  # all draws differ


def test_an_incomplete_last_batch_is_left_out():
    assert BatchPlan(examples=23, batch_size=4).epoch_steps == 5
    with pytest.raises(InputError, match="batch_size is 4 and there are 3 training examples"):
        BatchPlan(examples=3, batch_size=4)


def test_texts_of_like_length_come_together_and_short_ones_not_first():
    lengths = tuple(np.random.default_rng(0).integers(1, 60, size=1000).tolist())
    plan = BatchPlan(examples=1000, batch_size=10, lengths=lengths)
    epochs = [
        [[index for index, _ in plan.shard(step, 0, 1)] for step in range(e * 100, e * 100 + 100)] for e in (0, 1)
    ]
    for batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(1000))
        read = sum(10 * max(lengths[index] for index in batch) for batch in batches)
        assert read < 1.1 * sum(lengths)  # with random batches about 1.8
        means = [np.mean([lengths[index] for index in batch]) for batch in batches]
        assert abs(np.corrcoef(means, range(100))[0, 1]) < 0.3  # three deviations of a hundred random pairs
    assert not set(map(frozenset, epochs[0])) & set(map(frozenset, epochs[1]))  # epochs have no batch in common


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6, 12])
def test_parts_make_up_the_batch_and_partners_of_mixup_stay_together(parts):
    plan = BatchPlan(examples=50, batch_size=12, seed=3)
    whole = plan.shard(2, 0, 1)
    shards = [plan.shard(2, part, parts) for part in range(parts)]
    assert Counter(key for shard in shards for key in shard) == Counter(whole)
    partner = dict(zip(whole, reversed(whole), strict=True))  # timm mixes a batch with its own mirror image
    for shard in shards:
        if len(shard) % 2 == 0:
            assert [partner[key] for key in shard] == shard[::-1]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("world", "accumulate"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_a_step_is_the_same_set_for_any_number_of_processes(streaming, world, accumulate):
    plan = BatchPlan(examples=30, batch_size=12, repeats=2, shuffle=not streaming)
    options = dict(examples=Numbers(30, streaming))
    found = loaded(plan, range(5), world, accumulate, **options)
    for step in range(5):
        parts = [part for mine in found for part in mine[step * accumulate : (step + 1) * accumulate]]
        assert Counter(key for part in parts for key in part) == Counter(plan.shard(step, 0, 1))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_loader_can_begin_at_any_step(streaming):
    plan = BatchPlan(examples=30, batch_size=4, shuffle=not streaming)
    options = dict(examples=Numbers(30, streaming), shuffle_buffer=10)
    (whole,), (rest,) = loaded(plan, range(20), **options), loaded(plan, range(9, 20), **options)
    assert rest == whole[9:]


def test_workers_of_a_stream_take_turns():
    plan = BatchPlan(examples=32, batch_size=4, shuffle=False)
    alone, shared = (loaded(plan, range(16), examples=Numbers(32, True), workers=w) for w in (0, 2))
    assert alone == shared


def test_a_stream_is_shuffled_anew_each_epoch():
    plan = BatchPlan(examples=40, batch_size=40, shuffle=False)
    (found,) = loaded(plan, range(2), examples=Numbers(40, True), shuffle_buffer=20)
    first, second = ([x for x, _ in batch] for batch in found)
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second != list(range(40))


def test_a_stream_that_ends_early_says_how_long_it_is():
    plan = BatchPlan(examples=40, batch_size=4, shuffle=False)
    (found,) = loaded(plan, range(10), examples=Numbers(30, True))
    assert isinstance(found[-1], InputError)
    assert "the stream ended after 30 examples and 40 were expected: set data.length=30" in str(found[-1])


def test_repeated_augmentation_brings_an_image_several_times_into_a_batch():
    plan = BatchPlan(examples=24, batch_size=6, repeats=3)
    for step in range(plan.epoch_steps):
        keys = plan.shard(step, 0, 1)
        assert set(Counter(index for index, _ in keys).values()) == {3}
        assert len({draw for _, draw in keys}) == 6
    assert plan.epoch_steps == 4  # an epoch has no more steps because of it


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_evaluation_has_each_example_in_exactly_one_process(streaming, world):
    examples = Numbers(17, streaming)
    places = (Place(rank, world) for rank in range(world))
    found = [
        index
        for place in places
        for batch in evaluation_loader(examples, batch_size=4, place=place, workers=0, stack=list)
        for index, _ in batch
    ]
    assert sorted(found) == list(range(17))


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(InputError, match="batch_size is 10; expected a multiple of 4, 2 processes times"):
        loaded(BatchPlan(examples=20, batch_size=10), range(2), world=2, accumulate=2)
