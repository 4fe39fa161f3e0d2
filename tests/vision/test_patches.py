"""Patch attacks on linear models, whose best patch is known, and on small networks."""

import pytest
import torch
from torch import nn

from principal_attention.errors import InputError
from principal_attention.vision.attacks.garbage import GARBAGE, garbage_patches, worst_of
from principal_attention.vision.attacks.patches import attack_patches, gap_of
from principal_attention.vision.attacks.places import cut, fixed_place, paste, random_places
from principal_attention.vision.attacks.universal import universal_patch

CHANNELS, SIDE, SIZE = 3, 12, 4


class Linear(nn.Module):
    """Two classes: logits ∓(w·x + bias)/2 with random weights, so that the best patch is 0 or 1 by the sign of w."""

    def __init__(self, seed=0):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(CHANNELS, SIDE, SIDE, generator=draw))

    def forward(self, images):
        value = ((images - 0.5) * self.weight).flatten(1).sum(1)
        return torch.stack([-value / 2, value / 2], 1)


class Wavy(nn.Module):
    """A small network with many local optima, in which starts matter."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.last = nn.Linear(CHANNELS * SIDE * SIDE, 32), nn.Linear(32, 5)

    def forward(self, images):
        return self.last(torch.sin(6 * self.first(images.flatten(1))))


def pictures(count=12, seed=0):
    return torch.rand(count, CHANNELS, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def places(images, count=1, size=SIZE, **options):
    indices = options.pop("indices", range(len(images)))
    return random_places(size, *images.shape[-2:], indices=indices, seed=options.pop("seed", 0), count=count)


def outside(images, corners, size=SIZE):
    """The pixels that are not in the patch."""
    hole = paste(torch.ones_like(images), torch.zeros(len(images), CHANNELS, size, size), corners)
    return hole.bool()


def best_images(model, images, labels, corners):
    """The closed form: in the patch 1 where the weight favours the wrong class, and 0 elsewhere."""
    weights = cut(model.weight.detach().expand_as(images), corners, SIZE)
    towards = torch.where(labels == 0, 1.0, -1.0)[:, None, None, None]
    return paste(images, (weights * towards > 0).float(), corners)


@pytest.mark.parametrize("start", ["image", "noise", "both"])
def test_the_best_patch_of_a_linear_model_is_found(start):
    model, images = Linear(), pictures()
    labels = model(images).argmax(1)
    corners = places(images)
    best = best_images(model, images, labels, corners[:, 0])
    expected = gap_of(model(best).detach(), labels)
    assert 0 < (expected > 0).sum() < len(images)  # some images can be broken, and some cannot
    found = attack_patches(model, images, labels, corners, size=SIZE, steps=40, start=start, leave=False)
    torch.testing.assert_close(found.images, best)
    torch.testing.assert_close(found.gap, expected)
    leaving = attack_patches(model, images, labels, corners, size=SIZE, steps=40, start=start)
    assert torch.equal(leaving.gap > 0, expected > 0)


@pytest.mark.parametrize("placing", ["random", "worst", "fixed"])
@pytest.mark.parametrize("leave", [True, False])
def test_pixels_outside_of_the_patch_are_unchanged_and_those_inside_valid(placing, leave):
    model, images = Wavy(), pictures()
    images[:, :, ::3] = images[:, :, ::3].round()  # pixels at 0 and 1
    before, labels = images.clone(), model(images).argmax(1)
    corners = {
        "random": places(images),
        "worst": places(images, 3),
        "fixed": fixed_place(SIZE, SIDE, SIDE, (8, 0), images=len(images)),
    }[placing]
    found = attack_patches(model, images, labels, corners, size=SIZE, steps=7, restarts=2, leave=leave)
    assert torch.equal(images, before)
    kept = outside(images, found.corners)
    assert torch.equal(found.images[kept], images[kept])  # bit for bit
    assert kept.sum() == images.numel() - len(images) * CHANNELS * SIZE * SIZE
    assert ((found.images >= 0) & (found.images <= 1)).all()
    torch.testing.assert_close(cut(found.images, found.corners, SIZE), found.patches)
    assert all(any(torch.equal(at, one) for one in each) for at, each in zip(found.corners, corners, strict=True))
    torch.testing.assert_close(gap_of(model(found.images), labels).detach(), found.gap, atol=1e-5, rtol=1e-5)
    assert set(found.start) <= {"probe", "image", "noise"}


def test_places_depend_on_seed_and_image_only_and_cover_all():
    whole = random_places(5, 20, 30, indices=range(2000), seed=3, count=2)
    assert torch.equal(random_places(5, 20, 30, indices=[7, 1234], seed=3, count=2), whole[[7, 1234]])
    assert torch.equal(random_places(5, 20, 30, indices=range(2000), seed=3), whole[:, :1])  # nested
    assert not torch.equal(random_places(5, 20, 30, indices=range(2000), seed=4, count=2), whole)
    assert set(whole[..., 0].unique().tolist()) == set(range(16))
    assert set(whole[..., 1].unique().tolist()) == set(range(26))
    assert random_places(20, 20, 20, indices=[0], seed=0).tolist() == [[[0, 0]]]


def test_the_result_does_not_depend_on_the_batch():
    """In a model whose arithmetic does not depend on the batch either."""
    model, images = Linear().double(), pictures().double()
    labels = model(images).argmax(1)
    corners = places(images, 2)
    options = dict(size=SIZE, steps=3, restarts=2, seed=5)
    whole = attack_patches(model, images, labels, corners, **options)
    for chosen in ([4], [9, 2, 5]):
        part = attack_patches(model, images[chosen], labels[chosen], corners[chosen], indices=chosen, **options)
        torch.testing.assert_close(part.images, whole.images[chosen], atol=1e-12, rtol=0)
        assert part.start == [whole.start[i] for i in chosen]


def test_restarts_places_and_a_second_start_never_help_the_model():
    model, images = Wavy(), pictures(60)
    labels = model(images).argmax(1)
    options = dict(size=2, steps=3)

    def survived(count=1, **more):
        return attack_patches(model, images, labels, places(images, count, size=2), **options | more).gap <= 0

    one, two, four = (survived(restarts=n) for n in (1, 2, 4))
    assert (two <= one).all()
    assert (four <= two).all()
    assert four.sum() < one.sum()  # and here they do help the attacker
    assert (one <= survived(start="image")).all()
    # another place may be chosen with more candidates, but not to the model's advantage on the whole
    assert survived(6).sum() < one.sum()
    # more steps, the masking check of evaluations
    assert survived(steps=20).sum() <= one.sum()


def test_leaving_early_breaks_the_same_images():
    model, images = Wavy(), pictures(40)
    labels = model(images).argmax(1)
    options = dict(size=2, steps=8, restarts=2)
    left = attack_patches(model, images, labels, places(images, size=2), **options)
    stayed = attack_patches(model, images, labels, places(images, size=2), leave=False, **options)
    assert torch.equal(left.gap > 0, stayed.gap > 0)
    assert 0 < (left.gap > 0).sum() < len(images)
    assert (stayed.gap >= left.gap - 1e-6).all()


def test_a_fooled_image_costs_no_further_passes():
    seen = []

    class Counting(Linear):
        def forward(self, images):
            seen.append(len(images))
            return super().forward(images)

    model, images = Counting(), pictures()
    labels = model(images).argmax(1)
    seen.clear()
    wrong = attack_patches(model, images, 1 - labels, places(images), size=SIZE, steps=50)
    assert seen == [len(images)]  # all are wrong before the first step
    assert (wrong.gap > 0).all()
    torch.testing.assert_close(wrong.images, images, rtol=0, atol=0)


def test_the_model_is_left_as_it_was():
    model = Linear().train()
    attack_patches(model, pictures(), torch.zeros(12, dtype=torch.long), places(pictures()), size=SIZE, steps=2)
    assert model.training
    assert model.weight.requires_grad
    assert model.weight.grad is None


def test_a_dead_gradient_is_reported():
    class Dead(nn.Module):
        def forward(self, images):
            return (images.flatten(1)[:, :3] * 0).sum(1, keepdim=True) + torch.tensor([[1.0, 0.0]])

    model, images = Linear(), pictures()
    labels = torch.zeros(len(images), dtype=torch.long)
    found = attack_patches(Dead(), images, labels, places(images), size=SIZE, steps=3)
    assert (found.gradient == 0).all()
    found = attack_patches(model, images, model(images).argmax(1), places(images), size=SIZE, steps=3)
    assert (found.gradient > 0).all()


def test_logits_that_are_not_finite_count_as_wrong():
    class Broken(Linear):
        def forward(self, images):
            return super().forward(images) * float("nan")

    images, labels = pictures(), torch.zeros(12, dtype=torch.long)
    found = attack_patches(Broken(), images, labels, places(images), size=SIZE, steps=3)
    assert (found.gap > 0).all()
    assert ((found.images >= 0) & (found.images <= 1)).all()


def test_a_universal_patch_of_a_linear_model_is_the_best_one():
    """Images of one class, one place: the best patch for one is the best for all."""
    model, images = Linear(), pictures(40)
    labels = model(images).argmax(1)
    images, labels = images[labels == 1], labels[labels == 1]
    corner = torch.tensor([3, 5])
    patch = universal_patch(
        model, images, labels, places=lambda chosen, step: corner.expand(len(chosen), 2), size=SIZE, steps=40, batch=8
    )
    weights = model.weight[:, 3 : 3 + SIZE, 5 : 5 + SIZE]
    assert torch.equal(patch, (weights < 0).float())


def test_a_universal_patch_improves_on_its_own_images():
    model, images = Wavy(), pictures(50)
    labels = model(images).argmax(1)
    corners = places(images)[:, 0]

    def mean_gap(patch):
        return gap_of(model(paste(images, patch.expand(len(images), -1, -1, -1), corners)), labels).clamp(max=2).mean()

    learnt = universal_patch(model, images, labels, places=lambda chosen, _: corners[chosen], size=SIZE, steps=60)
    assert ((learnt * 255).round() / 255 == learnt).all()  # a PNG holds it exactly
    noise = [mean_gap(torch.rand(CHANNELS, SIZE, SIZE, generator=torch.Generator().manual_seed(i))) for i in range(20)]
    assert mean_gap(learnt) > max(noise)
    again = universal_patch(model, images, labels, places=lambda chosen, _: corners[chosen], size=SIZE, steps=60)
    assert torch.equal(learnt, again)


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_depends_on_seed_image_and_draw_only(kind):
    images, others = pictures(8), pictures(8, seed=1)
    options = dict(indices=range(8), seed=2)
    made = garbage_patches(kind, images, others, SIZE, **options)
    assert made.shape == (8, CHANNELS, SIZE, SIZE)
    assert ((made >= 0) & (made <= 1)).all()
    part = garbage_patches(kind, images[[5]], others[[5]], SIZE, indices=[5], seed=2)
    assert torch.equal(part[0], made[5])
    assert not torch.equal(garbage_patches(kind, images, others, SIZE, draw=1, **options), made)
    if kind == "piece":
        windows = others[5].unfold(1, SIZE, 1).unfold(2, SIZE, 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
        assert (windows == made[5]).all((1, 2, 3)).any()
    if kind == "stripes":
        assert made[5].flatten(1).T.unique(dim=0).shape[0] <= 2  # two colours


def test_the_worst_of_all_candidates_and_places_is_kept():
    model, images = Linear(), pictures(30)
    labels = model(images).argmax(1)
    corners = places(images, 3)
    candidates = [(str(i), torch.rand(30, CHANNELS, SIZE, SIZE)) for i in range(4)]
    changed, names, at = worst_of(model, images, labels, corners, candidates)
    gaps = torch.stack([
        gap_of(model(paste(images, patch, corners[:, k])), labels) for _, patch in candidates for k in range(3)
    ]).detach()  # fmt: skip
    found = gap_of(model(changed).detach(), labels)
    assert torch.equal(found > 1e-3, (gaps > 1e-3).any(0))
    right = (gaps <= 1e-3).all(0)
    torch.testing.assert_close(found[right], gaps.amax(0)[right])
    for i in range(30):
        patch = dict(candidates)[names[i]][i]
        assert torch.equal(cut(changed, at, SIZE)[i], patch)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"size": 13}, "side of 13 pixels; expected 1 to 12"),
        ({"size": 0}, "side of 0 pixels"),
        ({"steps": 0}, "steps is 0; expected at least 1"),
        ({"restarts": 0}, "restarts is 0"),
        ({"start": "black"}, "start is 'black'; expected one of both, image, noise"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, r"labels have shape \(3,\)"),
        ({"corners": torch.zeros(12, 2, dtype=torch.long)}, r"corners have shape \(12, 2\)"),
        ({"images": 2 * pictures()}, "expected values in"),
    ],
)
def test_bad_input_is_named(changed, says):
    given = {"images": pictures(), "labels": torch.zeros(12, dtype=torch.long), "corners": places(pictures())}
    given |= {"size": SIZE} | changed
    with pytest.raises(InputError, match=says):
        attack_patches(Linear(), given.pop("images"), given.pop("labels"), given.pop("corners"), **given)


def test_places_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"corner of the patch is 9,0; expected 0,0 to 8,8"):
        fixed_place(4, 12, 12, (9, 0), images=1)
    with pytest.raises(InputError, match="side of 40 pixels; expected 1 to 12"):
        random_places(40, 12, 12, indices=[0], seed=0)
    with pytest.raises(InputError, match="no images to learn"):
        universal_patch(Linear(), pictures(0), torch.zeros(0), places=lambda chosen, step: torch.zeros(0, 2), size=4)
    assert not len(attack_patches(Linear(), pictures(0), torch.zeros(0), places(pictures(0)), size=4).images)
