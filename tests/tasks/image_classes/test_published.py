"""Published sets in small folders of the same layout: ImageNet-A, -R, -O and -C."""

import numpy as np
import pytest
import torch
from PIL import Image

from evaluated import SIDE, create, principal, records, save
from principal_attention.tasks.image_classes.imagenet import SUBSETS, wnids


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small untrained model with ImageNet's 1000 classes and large weights, so that answers vary."""
    torch.manual_seed(0)
    options = dict(img_size=SIDE, patch_size=16, embed_dim=24, depth=1, num_heads=2, num_classes=1000)
    made = create("symvit_tiny_patch16_224", **options)
    with torch.no_grad():
        for p in made.parameters():
            p.mul_(4)
    return save(made.eval(), tmp_path_factory.mktemp("models") / "thousand", labels=tuple(wnids()), options=options)


def image(number):
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))


def lay_out(root, classes, each=2, first=0):
    for place, number in enumerate(classes):
        for i in range(each):
            file = root / wnids()[number] / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            image(first + 1000 * place + i).save(file)
    return root


def logits(model, classes, each=2, first=0):
    """Reference: the model's answers to the images of `lay_out`, ordered by class number."""
    from principal_attention.tasks.image_classes.subject import ImageSubject

    pixels = [np.asarray(image(first + 1000 * place + i)) for place in range(len(classes)) for i in range(each)]
    batch = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255
    with torch.inference_mode():
        return ImageSubject(str(model)).on_pixels(batch)


@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-r"])
def test_answers_among_the_sets_own_classes(model, tmp_path, name):
    chosen = SUBSETS[name][::20]
    lay_out(tmp_path / name, chosen)
    principal(model, "--suite", "ood", "--ood", tmp_path, "--out", tmp_path / "out")
    cut = logits(model, chosen)[:, SUBSETS[name]]
    true = torch.tensor([SUBSETS[name].index(number) for number in chosen for _ in range(2)])
    (found,) = records(tmp_path / "out", case=name, metric="top1")
    assert found["value"] == (cut.argmax(1) == true).double().mean().item()
    assert (found["n"], found["classes"]) == (20, 200)


def test_imagenet_o_against_imagenets_own_images(model, tmp_path):
    from sklearn.metrics import average_precision_score

    inside = SUBSETS["imagenet-o"]
    outside = sorted(set(range(1000)) - set(inside))
    lay_out(tmp_path / "imagenet-o", inside[::40])
    known = sorted([*inside[::50], *outside[:3]])  # images of other classes do not count
    lay_out(tmp_path / "val", known, first=500)  # different images, because equal ones would differ by rounding only
    principal(
        model, "--suite", "ood", "--ood", tmp_path / "imagenet-o", "--data", tmp_path / "val", "--out", tmp_path / "out"
    )

    def confidence(classes, first):
        return logits(model, classes, first=first)[:, inside].double().softmax(1).amax(1)

    kept = torch.tensor([number in inside for number in known for _ in range(2)])
    strange, familiar = confidence(inside[::40], 0), confidence(known, 500)[kept]
    truth = [1] * len(strange) + [0] * len(familiar)
    (found,) = records(tmp_path / "out", metric="aupr")
    assert found["value"] == pytest.approx(average_precision_score(truth, -torch.cat([strange, familiar])), abs=1e-6)
    assert found["negatives"] == 8
    assert "name them with --data" in principal(
        model, "--suite", "ood", "--ood", tmp_path / "imagenet-o", "--out", tmp_path / "none", code=1
    )


def test_two_hundred_classes_each():
    for name in ("imagenet-a", "imagenet-r", "imagenet-o"):
        assert len(set(SUBSETS[name])) == 200
    assert all(list(numbers) == sorted(numbers) for numbers in SUBSETS.values())
    assert SUBSETS["imagenet-a"][:3] == (6, 11, 13)
    assert SUBSETS["imagenet-o"][:3] == (1, 51, 70)


def test_the_published_corruptions(model, tmp_path):
    chosen = [5, 17, 800]
    for name, severity in (("fog", 1), ("fog", 3), ("snow", 1), ("snow", 3)):
        lay_out(tmp_path / "c" / name / str(severity), chosen)
    options = ["--suite", "corruptions", "--imagenet-c", tmp_path / "c"]
    principal(model, *options, "--corruptions", "fog,snow", "--severities", "1,3", "--out", tmp_path / "out")
    right = logits(model, chosen).argmax(1) == torch.tensor([number for number in chosen for _ in range(2)])
    found = records(tmp_path / "out", metric="top1")
    assert len(found) == 4
    assert {r["value"] for r in found} == {right.double().mean().item()}
    assert {r["source"] for r in found} == {"published"}
    assert "holds no frost; expected ImageNet-C as it unpacks" in principal(
        model, *options, "--corruptions", "frost,fog", "--out", tmp_path / "none", code=1
    )  # fmt: skip


def test_folders_that_are_not_what_they_should_be(model, trained, tmp_path):
    lay_out(tmp_path / "imagenet-a", [0, 6])  # 0 is not a class of ImageNet-A
    ood = ["--suite", "ood", "--ood", tmp_path, "--out", tmp_path / "out"]
    assert "'n01440764', which is not a class of imagenet-a" in principal(model, *ood, code=1)
    assert "for models with ImageNet's 1000 classes" in principal(trained, *ood, code=1)
    (tmp_path / "imagenet-a").rename(tmp_path / "old")
    assert "holds none of imagenet-a" in principal(model, *ood, code=1)
    lay_out(tmp_path / "imagenet-a" / "train", [6])
    assert "expected the class folders of imagenet-a" in principal(model, *ood, code=1)
    (tmp_path / "imagenet-r").mkdir()
    (tmp_path / "imagenet-a" / "train").rename(tmp_path / "moved")
    assert "neither parquet nor images" in principal(model, *ood, code=1)
