"""Sources of texts, and numbering of their classes."""

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from principal_attention.errors import InputError
from principal_attention.language.texts import Texts, open_split, open_splits


def test_a_subset_is_a_folder_in_a_folder(tmp_path):
    for name, text in (("first", "one two"), ("second", "three four")):
        (tmp_path / name).mkdir()
        for split in ("train", "validation"):
            datasets.Dataset.from_dict({"text": [text] * 3}).to_parquet(tmp_path / name / f"{split}.parquet")
    found = open_splits(str(tmp_path), labelled=False, subset="second")
    assert {role: split.texts for role, split in found.items()} == {
        role: ["three four"] * 3 for role in ("train", "validation")
    }


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("good", "bad"), [1, 0, -1]),
        (("Good", " BAD"), [1, 0, -1]),  # in another spelling
        (("Bad", "bad", "good"), [1, 2, -1]),  # of two spellings, its own
    ],
)
def test_classes_are_numbered_by_their_names(names, labels):
    split = Texts("test", ["a", "b", "c"], [0, 1, -1], ("bad", "good"))
    assert split.numbered_as(names).labels == labels  # a hidden class stays hidden


def test_texts_without_a_letter_or_that_are_no_text_are_refused(tmp_path):
    datasets.Dataset.from_dict({"text": ["", " \n"]}).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(InputError, match=r"the split train of .* holds no words"):
        open_split(str(tmp_path), "train", labelled=False)
    broken = pyarrow.array([b"good", b"\xff\xfe bad"]).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": broken}), tmp_path / "train.parquet")
    with pytest.raises(InputError, match=r"the split train of .* holds a text that is not UTF-8"):
        open_split(str(tmp_path), "train", labelled=False)


def test_the_split_that_is_missing_or_empty_is_named(tmp_path):
    features = datasets.Features({"text": datasets.Value("string")})
    for split, texts in (("train", ["a"]), ("test", [])):
        datasets.Dataset.from_dict({"text": texts}, features).to_parquet(tmp_path / f"{split}.parquet")
    for how, said in (
        ({"name": "dev"}, "has no split 'dev'; it has test, train"),
        ({"name": None}, "the split test of .* is empty"),
    ):
        with pytest.raises(InputError, match=said):
            open_split(str(tmp_path), labelled=False, **how)
    (tmp_path / "test.parquet").unlink()
    with pytest.raises(
        InputError, match=r"no split for validation, only train; .* hold out texts of the training split"
    ):
        open_splits(str(tmp_path), labelled=False)
