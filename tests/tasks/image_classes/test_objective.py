"""Loss of robust training: its targets, its perturbed images, and what it leaves alone."""

import pytest
import torch
import torch.nn.functional as F

from evaluated import HALF, OPTIONS, SIDE, create
from principal_attention.errors import InputError
from principal_attention.tasks.image_classes.objective import Objective, divergence
from principal_attention.tasks.image_classes.recipe import ImageRecipe
from principal_attention.vision.corruptions import corrupt
from principal_attention.vision.models.classifier import View
from principal_attention.vision.pixels import OnPixels

VIEW = View(SIDE, 3, HALF, HALF, 4)
EPS = 8 / 255


@pytest.fixture
def network():
    torch.manual_seed(0)
    return create("symvit_tiny_patch16_224", **OPTIONS)


@pytest.fixture
def batch():
    torch.manual_seed(1)
    return torch.rand(6, 3, SIDE, SIDE) * 2 - 1, torch.randint(4, (6,))  # normalised by mean and deviation 0.5


def objective(network, answering=None, /, **sections):
    given = dict(name="test", init_from="timm:deit_tiny_patch16_224", data={"source": "digits"}, **sections)
    return Objective(ImageRecipe(**given), network, VIEW, answering)


class Seen(torch.nn.Module):
    """A network that keeps its inputs."""

    def __init__(self, network):
        super().__init__()
        self.network, self.images = network, []

    def forward(self, images):
        self.images.append(images.detach().clone())
        return self.network(images)


def test_without_keys_it_is_the_cross_entropy(network, batch):
    images, labels = batch
    for smoothing in (0.0, 0.1):
        found = objective(network).loss(network, images, labels, smoothing=smoothing)
        assert found.equal(F.cross_entropy(network(images), labels, label_smoothing=smoothing))


def test_divergence_is_zero_for_the_same_answers_only(network, batch):
    logits = network(batch[0])
    target = logits.softmax(-1)
    assert divergence(logits, target).abs() < 1e-6  # rounding of a sum of 4 terms near 1
    by_hand = (target * (target.log() - torch.zeros(4).softmax(0).log())).sum(-1).mean()
    torch.testing.assert_close(divergence(torch.zeros(6, 4), target), by_hand)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("loss", ["pgd", "trades", "distill"])
def test_perturbed_images_keep_to_the_budget_and_to_valid_pixels(network, batch, loss, steps):
    images, labels = batch
    images[:2] = 1.0  # white: only darker pixels are valid
    seen = Seen(network)
    teacher = torch.nn.Sequential(network) if loss == "distill" else None
    made = objective(network, teacher, adversarial=dict(eps=EPS, steps=steps, loss=loss))
    made.loss(seen, images, labels)
    shown = seen.images[-1][-6:]
    moved = (shown - images).abs() * 0.5  # in pixels
    assert moved.max() <= EPS + 1e-6  # rounding of (x − mean)/std
    assert moved.mean() > EPS / 4  # an ascent ends at the border in most pixels
    assert shown.max() <= 1
    assert shown.min() >= -1


def test_more_steps_find_images_with_a_higher_loss(network, batch):
    images, labels = batch
    losses = []
    for steps in (1, 3, 30):
        torch.manual_seed(2)
        made = objective(network, adversarial=dict(eps=EPS, steps=steps, loss="pgd"))
        losses.append(made.loss(network, images, labels).item())
    assert F.cross_entropy(network(images), labels).item() < losses[0] < losses[1] < losses[2]


def test_the_teachers_answers_on_clean_images_are_the_target(network, batch):
    images, labels = batch
    torch.manual_seed(3)
    teacher = Seen(create("symvit_tiny_patch16_224", **OPTIONS)).eval()
    seen = Seen(network)
    made = objective(network, teacher, adversarial=dict(eps=EPS, loss="distill"))
    found = made.loss(seen, images, torch.full_like(labels, -1))  # labels of unlabelled data
    torch.testing.assert_close(teacher.images[0], images * 0.5 + 0.5)  # in pixels
    target = teacher.network(images * 0.5 + 0.5).softmax(-1)
    torch.testing.assert_close(found, divergence(network(seen.images[-1]), target))


def test_the_clean_term_is_added_with_its_weight(network, batch):
    images, labels = batch
    found = []
    for clean in (0.0, 0.5):
        torch.manual_seed(4)
        made = objective(network, adversarial=dict(eps=EPS, loss="pgd", clean=clean))
        found.append(made.loss(network, images, labels))
    torch.testing.assert_close(found[1] - found[0], 0.5 * F.cross_entropy(network(images), labels))


def test_trades_is_its_formula(network, batch):
    images, labels = batch
    seen = Seen(network)
    made = objective(network, adversarial=dict(eps=EPS, loss="trades", beta=3.0))
    found = made.loss(seen, images, labels)
    clean, there = network(seen.images[-1]).log_softmax(-1).chunk(2)
    apart = (clean.exp() * (clean - there)).sum(-1).mean()
    torch.testing.assert_close(found, F.nll_loss(clean, labels) + 3 * apart)


def test_the_attack_leaves_no_gradients_and_no_mode_behind(network, batch):
    images, labels = batch
    network.train()
    frozen = network.cls_token.requires_grad_(False)
    made = objective(network, adversarial=dict(eps=EPS, steps=2, loss="pgd"))
    loss = made.loss(network, images, labels)
    assert network.training
    assert all(each.grad is None for each in network.parameters())
    loss.backward()
    assert not frozen.requires_grad
    assert all(each.grad is not None for each in network.parameters() if each is not frozen)


def test_a_share_of_the_images_is_corrupted_each_in_its_own_way(network, batch):
    torch.manual_seed(5)
    images = torch.rand(60, 3, SIDE, SIDE).mul(255).round().div(255) * 2 - 1
    seen = Seen(network)
    keys = dict(kinds=["brightness", "contrast"], severities=[5], share=0.5)
    made = objective(network, corruptions=keys)
    made.loss(seen, images, torch.zeros(60, dtype=torch.long))
    shown = seen.images[-1]
    ways = []
    for before, after in zip(images, shown, strict=True):
        pixels = (before * 0.5 + 0.5)[None]
        found = [name for name in keys["kinds"]
                 if torch.allclose(corrupt(pixels, name, 5)[0] * 2 - 1, after, atol=1e-5)]  # fmt: skip
        ways += found or (["none"] if before.equal(after) else ["?"])
    assert "?" not in ways
    assert 15 < ways.count("none") < 45  # 30 expected, deviation 3.9
    assert min(ways.count("brightness"), ways.count("contrast")) > 5


def test_blocks_are_removed_from_perturbed_and_clean_images(network, batch):
    images, labels = batch
    lengths = []
    network.blocks[0].register_forward_hook(lambda _, given, out: lengths.append(tuple(given[0].shape[:2])))
    made = objective(network, token_removal=dict(patch=4, blocks=1),
                     adversarial=dict(eps=EPS, loss="pgd", clean=1.0))  # fmt: skip
    made.loss(network, images, labels)
    # 4 pixels touch up to 2 of 4 tokens of 8 pixels, so a block has 2×2 tokens of 16; the attack sees all.
    assert lengths == [(6, 17), (12, 13)]


def another(seed=3):
    torch.manual_seed(seed)
    return create("symvit_tiny_patch16_224", **OPTIONS).eval()


def features(network, block, images):
    """Tokens of a ViT of timm after a block, and its normalised class token, without hooks."""
    x = network._pos_embed(network.patch_embed(images))
    found = []
    for number, each in enumerate(network.blocks, 1):
        x = each(x)
        if number == block:
            found.append(x)
    return [*found, network.norm(x)[:, 0]]


@pytest.mark.parametrize("block", [1, 2, None])
def test_features_of_the_teacher_are_learnt_with_their_weight(network, batch, block):
    images, labels = batch
    teacher, found = another(), []
    depth = len(network.blocks)
    for sections in ({}, {"features": dict(weight=3.0, block=block)}):
        torch.manual_seed(4)
        seen = Seen(network)
        made = objective(network, OnPixels(teacher, HALF, HALF), adversarial=dict(eps=EPS, clean=0.5), **sections)
        found.append(made.loss(seen, images, labels))
    perturbed = seen.images[-1][:6]
    apart = 0.0
    for shown, weight in ((perturbed, 1.0), (images, 0.5)):
        own, target = (features(each, block or depth - 1, x) for each, x in ((network, shown), (teacher, images)))
        for place in range(2):
            pairs = zip(own[place], target[place], strict=True)
            ratios = [(a - b).norm() ** 2 / b.norm() ** 2 for a, b in pairs]
            apart = apart + 3.0 * weight * sum(ratios) / len(ratios)
    # The same perturbed images with and without features: attacks ascend the loss of the answers alone.
    torch.testing.assert_close(found[1] - found[0], apart)
    found[1].backward()
    assert all(each.grad is None for each in teacher.parameters())


def test_a_copy_of_the_teacher_has_no_loss(network, batch):
    made = objective(network, OnPixels(network, HALF, HALF), teacher="self", features={})
    assert made.loss(network, *batch).abs() < 1e-6  # rounding of pixels and back


def test_a_block_that_the_network_does_not_have_is_refused(network):
    with pytest.raises(InputError, match=r"features.block is 9; expected at most 2"):
        objective(network, OnPixels(network, HALF, HALF), teacher="self", features=dict(block=9))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"features": {}}, "features are the teacher's, and teacher is null"),
        ({"features": {}, "teacher": "self", "token_removal": {}}, "features are of all tokens"),
        ({"trained_share": 0}, "greater than 0"),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(network, sections, said):
    with pytest.raises(ValueError, match=said):
        objective(network, **sections)
