"""The attack that evades the gates of token pursuit."""

import pytest
import torch

import principal_attention as pa
from evaluated import pictures, principal, records
from principal_attention.adapt.condemned import watch_excess
from principal_attention.tasks.image_classes.evading import REACH, evadable, evade
from principal_attention.tasks.image_classes.subject import ImageSubject
from principal_attention.vision.attacks.patches import attack_patches, gap_of
from principal_attention.vision.attacks.places import paste, random_places


@pytest.fixture
def defended(trained):
    """A subject with calibrated token pursuit, images with a patch of extreme pixels, and their labels."""
    subject = ImageSubject(str(trained))
    clean, _ = pictures(64, seed=5)
    pursuit = pa.TokenPursuit(quantile=0.9)
    pa.robustify(subject.network, pursuit=pursuit, layers="all", calibrate=subject.normalised(clean))
    images, labels = pictures(12, seed=6)
    patches = (torch.rand(12, 3, 12, 12, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    return subject, paste(images, patches, random_places(12, 32, 32, indices=range(12), seed=0)[:, 0]), labels


def test_only_a_model_with_token_pursuit_can_be_evaded(trained, pursuing, defended):
    assert evadable(defended[0])
    assert not evadable(ImageSubject(str(trained)))
    assert not evadable(ImageSubject(str(pursuing)))


def test_the_objective_is_the_ungated_gap_minus_the_excess(defended, trained):
    subject, images, labels = defended
    ungated = gap_of(ImageSubject(str(trained)).on_pixels(images), labels)
    with watch_excess(subject.network) as collected:  # with gates, so that later layers see other keys
        gated = subject.on_pixels(images)
    assert collected[0].clamp(min=0).sum() > 0  # the patch is noticed
    value, logits = evade(subject, 0.5)(images, labels)
    torch.testing.assert_close(logits, gated)
    with watch_excess(subject.network, gated=False) as collected:
        subject.on_pixels(images)
    excess = sum(each.clamp(min=0).sum(1) for each in collected)
    torch.testing.assert_close(value, ungated.clamp(max=REACH) - 0.5 * excess, atol=1e-5, rtol=1e-5)
    assert not logits.requires_grad
    images = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(evade(subject)(images, labels)[0].sum(), images)
    assert (gradient.flatten(1).norm(dim=1) > 0).all()


def test_the_gates_are_open_only_meanwhile_and_success_is_that_of_the_gated_model(defended):
    subject, images, labels = defended
    before = subject.on_pixels(images)
    corners = random_places(12, 32, 32, indices=range(12), seed=0)
    found = attack_patches(subject.on_pixels, images, labels, corners, size=12, steps=5, objective=evade(subject))
    assert torch.equal(subject.on_pixels(images), before)
    torch.testing.assert_close(gap_of(subject.on_pixels(found.images), labels), found.gap, atol=1e-4, rtol=1e-4)


def test_the_command_evades_where_there_are_gates(folder, trained, tmp_path):
    principal(
        trained, "--data", folder, "--suite", "patches", "--patch", 8, "--steps", 2, "--limit", 8, "--robustify",
        "preset=tokens,layers=all", "--out", tmp_path / "out",
    )  # fmt: skip
    found = {each["case"] for each in records(tmp_path / "out", metric="top1")}
    assert found == {"pgd", "evade", "garbage", "worst"}
    (worst,) = records(tmp_path / "out", case="worst", metric="top1")
    assert worst["cases"] == "pgd,evade,garbage"
