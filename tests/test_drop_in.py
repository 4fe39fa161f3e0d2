"""benchmarks/drop_in.py: subset, noise, and resuming after an interruption."""

import json

import pytest
import torch


@pytest.fixture(scope="module")
def drop_in(benchmark):
    return benchmark("drop_in")


def test_the_subset_has_one_image_of_every_second_class(drop_in):
    labels = torch.arange(1000).repeat_interleave(2)
    assert labels[drop_in.subset(labels)].tolist() == list(range(0, 1000, 2))


def test_noise_depends_on_the_image_and_the_seed_alone(drop_in):
    image = torch.full((3, 8, 8), 0.5)
    assert torch.equal(drop_in.noisy(image, 7, 0), drop_in.noisy(image, 7, 0))
    assert not torch.equal(drop_in.noisy(image, 7, 0), drop_in.noisy(image, 8, 0))
    assert not torch.equal(drop_in.noisy(image, 7, 0), drop_in.noisy(image, 7, 1))
    many = torch.stack([drop_in.noisy(image, i, 0) for i in range(200)])
    assert 0 <= many.min() <= many.max() <= 1
    assert abs(many.std() - 0.18) < 0.002  # clipping takes 0.3% of the entries


def test_a_record_cut_short_by_a_kill_is_measured_again(drop_in, tmp_path):
    path = tmp_path / "records.jsonl"
    record = dict(model="m", preset="paper", iterations=2, lam=1.0, layers="first", case="clean", seed=0, n=3)
    records = drop_in.Records(path)
    records.add(record | {"correct": "101"})
    records.add(record | {"seed": 1, "correct": "111"})
    path.write_text(path.read_text()[:-9])  # in the middle of the last line
    again = drop_in.Records(path)
    assert list(again.found) == [drop_in.Records.key(record)]
    again.add(record | {"seed": 1, "correct": "111"})
    assert len(drop_in.Records(path).found) == 2
    whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line)["seed"] for line in whole] == [0, 1]


def test_differences_are_paired(drop_in):
    plain = torch.tensor([1.0, 0, 1, 0] * 25, dtype=torch.float64)
    gap, error = drop_in.difference(plain, plain)
    assert gap == error == 0
    worse = plain.clone()
    worse[0] = 0
    gap, error = drop_in.difference(worse, plain)
    assert gap == pytest.approx(-1)
    assert error == pytest.approx(1)  # one image of a hundred: within noise
