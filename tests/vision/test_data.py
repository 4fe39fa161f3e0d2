"""Sources of images, and their transforms."""

import io
import random

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from principal_attention.errors import InputError
from principal_attention.plumbing.seeds import seed_all
from principal_attention.vision.data import (
    Examples,
    evaluation_transform,
    open_splits,
    stack,
    training_transform,
)  # fmt: skip
from principal_attention.vision.data.sources import class_count

LOOK = dict(mean=(0.5,) * 3, std=(0.5,) * 3)


def picture(value, size=8, mode="RGB"):
    return Image.new(mode, (size, size), value if mode != "RGB" else (value,) * 3)


@pytest.fixture
def table():
    """table(n): dataset of n grey images labelled by their index modulo 3."""

    def make(n, image="img", **extra):
        features = {image: datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
        columns = {image: [picture(10 * i) for i in range(n)], "label": [i % 3 for i in range(n)]}
        for name, values in extra.items():
            features[name] = datasets.Value("int64")
            columns[name] = values
        return datasets.Dataset.from_dict(columns, features=datasets.Features(features))

    return make


@pytest.fixture
def parquet(tmp_path, table):
    folder = tmp_path / "parquet"
    folder.mkdir()
    table(12).to_parquet(folder / "train-00000.parquet")
    table(6).to_parquet(folder / "test-00000.parquet")
    return folder


@pytest.fixture
def classes(tmp_path):
    def make(*splits, names=("n02", "n01"), suffix="JPEG"):
        for split in splits or ("",):
            for number, name in enumerate(names):
                folder = tmp_path / "images" / split / name
                folder.mkdir(parents=True)
                for i in range(3):
                    picture(100 * number + i).save(folder / f"{i}.{suffix}", "jpeg", quality=100)
        return tmp_path / "images"

    return make


def read(split, index=0):
    row = split.rows[index] if not split.streaming else next(iter(split.rows.skip(index)))
    image, label = split.read(row, index, "RGB")
    return image.getpixel((0, 0))[0], label


def test_parquet_finds_its_splits_and_columns_by_type(parquet):
    training, held = open_splits(str(parquet))
    assert (training.length, held.length, held.name) == (12, 6, "test")
    assert (training.image, training.label, training.classes) == ("img", "label", ("a", "b", "c"))
    assert read(training, 4) == (40, 1)


def test_one_parquet_file_and_a_holdout(parquet):
    source = str(parquet / "train-00000.parquet")
    training, held = open_splits(source, holdout=4)
    assert (training.length, held.length) == (8, 4)
    values = [read(split, i)[0] for split in (training, held) for i in range(split.length)]
    assert sorted(values) == [10 * i for i in range(12)]  # nothing twice, nothing lost
    again, _ = open_splits(source, holdout=4)
    assert [read(again, i) for i in range(8)] == [read(training, i) for i in range(8)]


@pytest.mark.parametrize("name", ["val", "validation", "test"])
def test_imagenet_as_users_have_it(classes, name):
    source = classes("train", name)
    (source / "train" / "n01" / "notes.txt").write_text("not an image")
    (source / "train" / ".hidden").mkdir()
    training, held = open_splits(str(source))
    assert (training.length, held.name, training.classes) == (6, name, ("n01", "n02"))  # by sorted name
    assert read(training, 0) == (100, 0)
    assert read(training, 3) == (0, 1)


def test_a_class_that_a_split_lacks_does_not_renumber_the_others(classes):
    source = classes("train", "val", names=("n03", "n02", "n01"))
    for file in [*(source / "val" / "n01").iterdir(), *(source / "train" / "n02").iterdir()]:
        file.unlink()
    training, held = open_splits(str(source))
    assert training.classes == held.classes == ("n01", "n02", "n03")
    assert (set(training.rows["label"]), set(held.rows["label"])) == ({0, 2}, {1, 2})
    (source / "val" / "n02").rename(source / "val" / "n99")
    with pytest.raises(InputError, match=r"val/n99 is a class that .*train does not have"):
        open_splits(str(source))


def test_a_split_that_numbers_its_classes_otherwise_is_renumbered_by_name(table, tmp_path):
    turned = datasets.ClassLabel(names=["c", "b", "a"])
    table(6).to_parquet(tmp_path / "train.parquet")
    table(6).cast_column("label", turned).to_parquet(tmp_path / "test.parquet")
    _, held = open_splits(str(tmp_path))
    assert [read(held, i)[1] for i in range(3)] == [2, 1, 0]
    table(6).cast_column("label", datasets.ClassLabel(names=["a", "b", "x"])).to_parquet(tmp_path / "test.parquet")
    with pytest.raises(InputError, match="the split test has a class 'x'; expected some of"):
        open_splits(str(tmp_path))


def test_folders_as_they_are_found(classes, table):
    """Nested folders, capitals, hidden files, a table among the images, a split of any name."""
    source = classes("train", "Val", suffix="JPG")
    (source / "train" / "n01" / "more").mkdir()
    picture(7).save(source / "train" / "n01" / "more" / "x.png")
    (source / "train" / "n01" / "._0.png").write_bytes(b"")
    (source / "train" / "n01" / "folder.png").mkdir()
    table(3).to_parquet(source / "train" / "notes.parquet")
    training, held = open_splits(str(source), validation="Val")
    assert (training.length, held.length) == (7, 6)
    with pytest.raises(InputError, match="no split for validation"):
        open_splits(str(source))
    for file in (source / "Val").rglob("*.JPG"):
        file.unlink()
    with pytest.raises(InputError, match=r"the split Val of .* is empty"):
        open_splits(str(source), validation="Val")


def test_class_folders_alone_are_a_training_split(classes):
    source = str(classes())
    with pytest.raises(InputError, match=r"no split for validation, only train; .*data\.holdout"):
        open_splits(source)
    assert open_splits(source, holdout=2)[0].length == 4


@pytest.mark.parametrize("kind", ["parquet", "classes"])
def test_a_stream_gives_the_same_images(kind, request, classes):
    source = str(request.getfixturevalue("parquet") if kind == "parquet" else classes("train", "val"))
    streamed, at_hand = (open_splits(source, streaming=s)[0] for s in (True, False))
    assert streamed.streaming
    assert not at_hand.streaming
    assert [read(streamed, i) for i in range(6)] == [read(at_hand, i) for i in range(6)]
    assert (streamed.classes, streamed.length) == (at_hand.classes, at_hand.length)


def test_a_limit_takes_the_same_images_each_time(parquet):
    found = [open_splits(str(parquet), limit=5)[0] for _ in range(2)]
    values = [[read(split, i) for i in range(5)] for split in found]
    assert values[0] == values[1]
    assert found[0].length == 5


def test_digits_are_embedded():
    training, held = open_splits("digits")
    assert (training.length, held.length) == (1437, 360)
    assert class_count((training, held)) == 10
    labels = np.bincount(held.rows["label"])
    assert labels.min() >= 35  # the same share of every class
    pixels = [np.asarray(training.read(row, 0, "L")[0]) for row in training.rows]
    assert np.max(pixels) == 255


def test_plain_integers_are_counted_as_classes(table, tmp_path):
    table(6).cast_column("label", datasets.Value("int32")).to_parquet(tmp_path / "x.parquet")
    training, held = open_splits(str(tmp_path / "x.parquet"), holdout=1)
    assert training.classes is None
    assert class_count((training, held)) == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"train": "dev"}, r"has no split 'dev'; it has test, train"),
        ({"validation": "dev"}, r"has no split 'dev'; it has test, train"),
        ({"image": "picture"}, r"data\.image is 'picture'; the columns are img, label"),
        ({"holdout": 12}, r"data\.holdout is 12; expected fewer than the 12 images of train"),
        ({"holdout": 2, "validation": "test"}, r"data\.validation is 'test' and data\.holdout is 2: drop one"),
        ({"holdout": 2, "streaming": True}, r"cannot be combined with data\.streaming"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(parquet, options, sentence):
    with pytest.raises(InputError, match=sentence):
        open_splits(str(parquet), **options)


def test_columns_that_cannot_be_told_apart_must_be_named(table, tmp_path):
    path = tmp_path / "x.parquet"
    table(6, other=[5] * 6).cast_column("label", datasets.Value("int64")).to_parquet(path)
    with pytest.raises(InputError, match=r"several columns could be the label: label, other; .*data\.label=COLUMN"):
        open_splits(str(path), holdout=1)
    assert open_splits(str(path), holdout=1, label="other")[0].label == "other"
    table(6).remove_columns("img").to_parquet(path)
    with pytest.raises(InputError, match="no column holds the image: expected"):
        open_splits(str(path), holdout=1)


def test_a_source_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("")
    for source, sentence in (
        (str(tmp_path / "nowhere"), "there is nothing at"),
        (str(tmp_path / "empty"), "holds neither parquet nor images"),
        (str(tmp_path / "file.txt"), "is a file but not parquet"),
    ):
        with pytest.raises(InputError, match=sentence) as wrong:
            open_splits(source)
        assert "\n" not in str(wrong.value)


def read_bytes(content):
    return open_splits("digits")[0].read({"image": {"bytes": content, "path": None}, "label": 0}, 0, "RGB")[0]


@pytest.mark.parametrize(
    ("mode", "value"), [("L", 7), ("RGBA", (7, 7, 7, 255)), ("CMYK", (0, 0, 0, 248)), ("I;16", 1799)]
)
def test_every_mode_becomes_the_models(mode, value):
    file = io.BytesIO()
    Image.new(mode, (8, 8), value).save(file, "tiff" if mode == "CMYK" else "png")
    image = read_bytes(file.getvalue())
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (8, 8), (7, 7, 7))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "not an image in one of the formats"),  # runs no program
        (b"", "not an image"),
        (None, "there is no image"),
    ],
)
def test_what_is_no_image_is_refused(content, sentence):
    with pytest.raises(InputError, match=f"image 0 of split train cannot be read: {sentence}"):
        read_bytes(content)


def test_pixels_without_a_range_are_refused():
    file = io.BytesIO()
    Image.new("F", (8, 8), 0.5).save(file, "tiff")
    with pytest.raises(InputError, match="no fixed range"):
        read_bytes(file.getvalue())


def test_deits_augmentation_holds_for_thousands_of_draws():
    """One in a thousand posterizes to 0 bits, which PIL refuses."""
    transform = training_transform(8, **LOOK, crop="resized", rand_augment="rand-m9-mstd0.5-inc1", erasing=0.25)
    for draw in range(4000):
        seed_all("augmentation", 0, draw)
        transform(picture(100))


@pytest.mark.parametrize("kind", ["string", "bool"])
def test_labels_that_are_no_numbers_are_named(table, tmp_path, kind):
    rows = table(4).cast_column("label", datasets.Value("int64"))
    rows.add_column("other", ["x"] * 4 if kind == "string" else [True] * 4).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=rf"data\.label is 'other', which holds .*{kind}.*; expected whole numbers"):
        open_splits(str(tmp_path / "x.parquet"), holdout=1, label="other")


def test_an_image_of_the_models_size_is_left_alone():
    random_image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8))
    seen = evaluation_transform(16, **LOOK)(random_image)
    pixels = torch.from_numpy(np.array(random_image)).permute(2, 0, 1) / 255
    torch.testing.assert_close(seen, (pixels - 0.5) / 0.5)
    assert evaluation_transform(16, **LOOK)(picture(3, size=40)).shape == (3, 16, 16)


@pytest.mark.parametrize("crop", ["none", "pad", "resized"])
def test_an_example_depends_on_its_draw_alone(crop, parquet):
    """The same key gives the same tensor, independent of earlier draws and of the process."""
    transform = training_transform(8, **LOOK, crop=crop, flip=0.5, rand_augment="rand-m9-mstd0.5-inc1", erasing=0.5)
    examples = Examples(open_splits(str(parquet))[0], transform, num_classes=3, seed=5)
    first = [examples[3, draw][0] for draw in range(8)]
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    again = [examples[3, draw][0] for draw in reversed(range(8))][::-1]
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    assert any(not first[0].equal(other) for other in first[1:])
    assert all(x.shape == (3, 8, 8) for x in first)


def test_without_random_numbers_an_example_is_prepared_once(parquet):
    examples = Examples(open_splits(str(parquet))[0], evaluation_transform(8, **LOOK), num_classes=3)
    assert examples[2, 0][0] is examples[2, 1][0]


def test_errors_come_in_the_place_of_a_batch(parquet):
    examples = Examples(open_splits(str(parquet))[0], evaluation_transform(8, **LOOK), num_classes=2)
    fine, wrong = stack([examples[0, 0], examples[1, 0]]), stack([examples[0, 0], examples[2, 0]])
    assert fine[0].shape == (2, 3, 8, 8)
    assert isinstance(wrong, InputError)
    assert "the label of image 2 of split train is 2" in str(wrong)
