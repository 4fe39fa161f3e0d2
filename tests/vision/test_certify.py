"""Certificates: double masking as in the paper, the same in batches and one by one, and unbroken by attacks."""

from collections import Counter

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn
from transformers import DeiTConfig, DeiTForImageClassification, ViTConfig, ViTForImageClassification

import principal_attention as pa
from evaluated import create, pictures
from principal_attention.vision import certify
from principal_attention.vision.models import names  # noqa: F401  (registers the models)
from principal_attention.vision.models.classifier import HuggingFace
from principal_attention.vision.pixels import OnPixels
from principal_attention.vision.tokens import keeping, token_grid

SIDE = 32
OPTIONS = dict(img_size=SIDE, patch_size=4, embed_dim=24, depth=2, num_heads=2, num_classes=4)
HF = dict(image_size=SIDE, patch_size=4, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
          intermediate_size=32, num_labels=4)  # fmt: skip
HALF = (0.5, 0.5, 0.5)
PATCH = 9


@pytest.fixture(scope="module")
def model():
    """A ViT on images in [0, 1], trained for a second with half of the tokens removed at random."""
    torch.manual_seed(0)
    images, labels = pictures(128)
    made = OnPixels(create("vit_tiny_patch16_224", **OPTIONS), HALF, HALF)
    adam = torch.optim.AdamW(made.parameters(), lr=3e-3)
    for step in range(60):
        chosen = torch.arange(32) + 32 * (step % 4)
        adam.zero_grad()
        with keeping(made, torch.rand(32, 64).argsort(1)[:, :32]):
            F.cross_entropy(made(images[chosen]), labels[chosen]).backward()
        adam.step()
    return made.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def images():
    """Images of four classes, some of them mixed with noise, so that not all are certified."""
    found, labels = pictures(24, seed=5)
    noise = torch.rand(found.shape, generator=torch.Generator().manual_seed(3))
    share = torch.linspace(0, 0.7, len(found))[:, None, None, None]
    return (1 - share) * found + share * noise, labels


def blocks(side, patch, most):
    """Blocks of tokens that cover the patch, as sets of tokens, from the definition."""
    touched = max(len({pixel // 4 for pixel in range(start, start + patch)}) for start in range(4))
    for width in range(touched, side):
        starts = sorted({*range(0, side - width, width - touched + 1), side - width})
        if len(starts) <= most:
            break
    return [
        {(row + i) * side + column + j for i in range(width) for j in range(width)}
        for row in starts
        for column in starts
    ]


def predict(model, image, hidden):
    kept = torch.tensor([i for i in range(64) if i not in hidden])
    with torch.no_grad(), keeping(model, kept):
        return int(model(image[None]).argmax())


def slowly(model, image, patch, most=6):
    """Double masking of one image, mask by mask, as printed in the paper: answer, and whether it is certified."""
    masks = blocks(8, patch, most)
    one = [predict(model, image, mask) for mask in masks]
    agreed = set(one)
    for first in masks:
        for second in masks:
            if len(agreed) == 1:
                agreed.add(predict(model, image, first | second))
    if len(set(one)) == 1:
        return one[0], len(agreed) == 1
    majority = min(label for label, count in Counter(one).items() if count == max(Counter(one).values()))
    for label, mask in zip(one, masks, strict=True):
        if label != majority and all(predict(model, image, mask | second) == label for second in masks):
            return label, False
    return majority, False


def test_answers_are_those_of_the_paper_s_loops(model, images):
    found = pa.MaskedCertifier(model, PATCH, per_side=3)(images[0])
    expected = [slowly(model, image, PATCH, 3) for image in images[0]]
    assert [*zip(found.answers.tolist(), found.certified.tolist(), strict=True)] == expected
    assert 4 < sum(certified for _, certified in expected) < 20  # both kinds of images are there


def test_a_minority_that_no_second_mask_changes_wins(images):
    """A patch that decides all answers with its tokens loses to the one mask that removes them."""
    model = OnPixels(Loudest(), (0.0,) * 3, (1.0,) * 3)
    image = torch.zeros(1, 3, SIDE, SIDE)
    certifier = pa.MaskedCertifier(model, 4)
    assert certifier(image).answers.tolist() == [0]
    image[:, :, 0:4, 0:4] = 1.0  # class 1, except where the first mask removes it
    answers, certified = certifier(image)
    assert (answers.tolist(), certified.tolist()) == ([0], [False])
    assert certifier(image).answers.tolist() == [slowly(model, image[0], 4)[0]]
    image[:, :, 28:32, 28:32] = 1.0  # two patches are beyond the defence: no mask removes both
    assert certifier(image).answers.tolist() == [1]


class Loudest(timm.models.vision_transformer.VisionTransformer):
    """Class 1 if any token holds a bright pixel, else class 0."""

    def __init__(self):
        super().__init__(**OPTIONS | {"embed_dim": 48, "depth": 0, "num_classes": 2})

    def forward(self, images):
        stem = torch.cat([images.new_zeros(len(images), 1, 48), F.unfold(images, 4, stride=4).mT], 1)
        return torch.cat([torch.full((len(x := self.patch_drop(stem)), 1), 0.5), x.amax((1, 2))[:, None]], 1)


def test_the_answer_does_not_depend_on_batches_or_the_order_of_pairs(model, images, monkeypatch):
    few = images[0][::3]
    expected = pa.MaskedCertifier(model, PATCH, batch_size=1)(few)
    for size in (7, 64):
        torch.testing.assert_close(tuple(pa.MaskedCertifier(model, PATCH, batch_size=size)(few)), tuple(expected))
    alone = [pa.MaskedCertifier(model, PATCH)(image[None]) for image in few]
    assert torch.equal(torch.cat([each.answers for each in alone]), expected.answers)
    assert torch.equal(torch.cat([each.certified for each in alone]), expected.certified)

    class InReverse(pa.MaskedCertifier):
        def _ordered(self, label, logits, pairs):
            return super()._ordered(label, logits, pairs)[::-1]

    torch.testing.assert_close(tuple(InReverse(model, PATCH)(few)), tuple(expected))
    monkeypatch.setattr(certify, "FIRST", 10**6)  # every pair at once: nothing stops early
    torch.testing.assert_close(tuple(pa.MaskedCertifier(model, PATCH)(few)), tuple(expected))


def test_wrong_pairs_are_found_early_and_labels_save_more(model, images):
    certifier, computed = pa.MaskedCertifier(model, PATCH), []
    handle = model.model.register_forward_hook(lambda *called: computed.append(len(called[2])))
    everything = certifier.masks + certifier.pairs
    found = []
    for image in images[0]:
        computed.clear()
        found.append(certifier(image[None]))
        assert found[-1].certified or sum(computed) < everything / 2
        assert not found[-1].certified or sum(computed) == everything
    labels = (torch.cat([each.answers for each in found]) + 1) % 4  # all wrong
    answers = torch.cat([each.answers for each in found])
    assert certifier.for_labels(images[0], answers).certified.sum() == sum(each.certified for each in found)
    computed.clear()
    wrong = certifier.for_labels(images[0], labels)
    assert torch.equal(wrong.answers, answers)
    assert not wrong.certified.any()
    disagreeing = sum(len({predict(model, image, mask) for mask in blocks(8, PATCH, 6)}) > 1 for image in images[0])
    assert sum(computed) <= len(images[0]) * certifier.masks + disagreeing * certifier.pairs
    handle.remove()


def attacked(model, images, labels, places, patch, masks, steps):
    """Images with patches at all places, ascending the loss averaged over random masks and pairs of masks."""
    random = torch.Generator().manual_seed(0)
    area = torch.zeros(len(places), 1, SIDE, SIDE)
    for each, (top, left) in zip(area, places, strict=True):
        each[:, top : top + patch, left : left + patch] = 1
    start = torch.rand(len(images), len(places), 3, SIDE, SIDE, generator=random)
    found = (images[:, None] * (1 - area) + start * area).flatten(0, 1)
    area, labels = area.repeat(len(images), 1, 1, 1), labels.repeat_interleave(len(places))
    yield found, labels
    for step in range(steps):
        pair = masks[torch.randint(len(masks), (2,), generator=random)]
        kept = (~(pair[0] if step % 2 else pair.any(0))).nonzero().flatten()
        found = found.requires_grad_()
        with keeping(model, kept):
            loss = F.cross_entropy(model(found), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, found)
        found = (found.detach() + 0.1 * gradient.sign() * area).clamp(0, 1)
        if step % 25 == 24:
            yield found, labels
    for value in (0.0, 1.0):
        yield found * (1 - area) + value * area, labels


def test_no_attack_changes_a_certified_answer(model, images):
    certifier = pa.MaskedCertifier(model, PATCH, per_side=3)
    answers, certified = certifier(images[0])
    places = [(top, left) for top in (0, 6, 23) for left in (1, 11, 19)]
    fooled = {}
    for kind, chosen in (("certified", certified), ("other", ~certified)):
        few = chosen.nonzero().flatten()[:4]
        changed = []
        for found, labels in attacked(
            model, images[0][few], answers[few], places, PATCH, certifier.removed, 100 if kind == "certified" else 25
        ):
            changed += (certifier(found).answers != labels).tolist()
        fooled[kind] = sum(changed)
    assert fooled["certified"] == 0
    assert fooled["other"] > 0  # the attacks do work where nothing is certified


def test_patches_that_are_not_numbers_change_nothing(model, images):
    certifier = pa.MaskedCertifier(model, PATCH, per_side=3)
    answers, certified = certifier(images[0])
    few = certified.nonzero().flatten()[:3]
    for value in (torch.nan, torch.inf, 1e30):
        broken = images[0][few].clone()
        broken[:, :, 5 : 5 + PATCH, 17 : 17 + PATCH] = value
        assert torch.equal(certifier(broken).answers, answers[few])


def test_an_answer_by_a_hair_is_not_certified(model, images):
    answers, certified = pa.MaskedCertifier(model, PATCH)(images[0])
    strict = pa.MaskedCertifier(model, PATCH, tolerance=0.999)(images[0])
    assert torch.equal(strict.answers, answers)
    assert certified.any()
    assert not strict.certified.any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ViTForImageClassification(ViTConfig(**HF)),
        lambda: HuggingFace(DeiTForImageClassification(DeiTConfig(**HF))),
        lambda: create("deit_tiny_distilled_patch16_224", **OPTIONS),
        lambda: create("symvit_tiny_patch16_224", **OPTIONS),
        lambda: create("rpc_symvit_tiny_patch16_224", pursuit=pa.Pursuit(2, 0.5), layers="all", **OPTIONS),
        lambda: pa.robustify(create("vit_tiny_patch16_224", **OPTIONS), pursuit=pa.Pursuit(2, 1.0, "cleaned")),
        lambda: create("vit_tiny_patch16_224", **OPTIONS).double(),
    ],
)
def test_every_family_and_rpc_attention_can_be_certified(make, images):
    torch.manual_seed(0)
    model = make().eval()
    few = images[0][:2].to(next(model.parameters()).dtype)
    certifier = pa.MaskedCertifier(model, 12, per_side=2)
    answers, certified = certifier(few)
    assert answers.shape == certified.shape == (2,)
    assert certified.dtype == torch.bool
    assert not answers.requires_grad
    plain = Plain(model)
    assert answers.tolist() == [slowly(plain, image, 12, 2)[0] for image in few]
    assert [len(each) for each in certifier(few[:0])] == [0, 0]


class Plain(nn.Module):
    """Logits as a tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        output = self.model(images)
        return output if isinstance(output, torch.Tensor) else output.logits


def test_rectangular_images(images):
    torch.manual_seed(0)
    model = create("vit_tiny_patch16_224", **OPTIONS | {"img_size": (24, 32)}).eval()
    certifier = pa.MaskedCertifier(model, 6)
    assert (token_grid(model).rows, token_grid(model).columns) == (6, 8)
    assert len(certifier(images[0][:2, :, :24]).answers) == 2


class Leaking(nn.Module):
    """Wrappers through which removed pixels, other images or chance reach the answer."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.model = create("vit_tiny_patch16_224", **OPTIONS).eval()

    def forward(self, images):
        if self.how == "contrast":
            images = images - images.mean((1, 2, 3), keepdim=True)
        elif self.how == "blur":
            images = F.avg_pool2d(images, 3, stride=1, padding=1)
        elif self.how == "batch":
            images = images - images.mean(0)
        elif self.how == "chance":
            images = images + 0.1 * torch.randn_like(images)
        return self.model(images)


@pytest.mark.parametrize("how", ["contrast", "blur", "batch", "chance"])
def test_models_that_leak_are_refused(how):
    with pytest.raises(pa.InputError, match="Leaking cannot be certified: its answer to an image without some tokens"):
        pa.MaskedCertifier(Leaking(how), 8)
    pa.MaskedCertifier(Leaking(None), 8)


def test_models_that_need_all_tokens_are_refused():
    with pytest.raises(pa.InputError, match="cannot work without some of its tokens"):
        pa.MaskedCertifier(create("scaled_vit_tiny_patch16_224", kind="matrix", **OPTIONS), 8)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: pa.MaskedCertifier(m, 33), "patch is 33 and the images have 32×32 pixels"),
        (lambda m: pa.MaskedCertifier(m, 0), "patch is 0; expected a whole number of pixels from 1"),
        (lambda m: pa.MaskedCertifier(m, 30), "a patch of 30 pixels touches up to 9 of the 8 tokens"),
        (lambda m: pa.MaskedCertifier(m, 8, per_side=1), "number of masks per side is 1"),
        (lambda m: pa.MaskedCertifier(m, 8, batch_size=0), "batch_size is 0"),
        (lambda m: pa.MaskedCertifier(m, 8, tolerance=-1), "tolerance is -1"),
        (lambda m: pa.MaskedCertifier(nn.Conv2d(3, 3, 3), 8), "Conv2d is no vision transformer of a known class"),
        (lambda m: pa.MaskedCertifier(m, 8)(torch.zeros(1, 3, 32, 24)), r"\(1, 3, 32, 24\); expected \(B, 3, 32, 32\)"),
        (lambda m: pa.MaskedCertifier(m, 8)(torch.zeros(3, 32, 32)), "images have shape"),
        (
            lambda m: pa.MaskedCertifier(m, 8).for_labels(torch.zeros(2, 3, 32, 32), torch.zeros(3).long()),
            r"labels have shape \(3,\); expected \(2,\)",
        ),
        (lambda m: pa.MaskedCertifier(m, 8).train()(torch.zeros(1, 3, 32, 32)), "the model is in training mode"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(call, sentence, model):
    with pytest.raises(pa.InputError, match=sentence):
        call(model)
    model.eval()
