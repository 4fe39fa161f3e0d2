"""Each extra suffices for its own models: the packages of the other extra are not importable."""

import pytest

ONLY_IMAGES_NEED = ("foolbox", "pyautoattack", "sklearn", "matplotlib", "jinja2")
ONLY_TEXTS_NEED = ("transformers", "tokenizers")


# Hides packages with the same errors as if they were not installed.
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, *more):
        return None if name.partition(".")[0] in {missing!r} else super().find_spec(name, *more)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
sys.argv = {words!r}
from principal_attention.cli import main
main()
"""


@pytest.fixture
def principal_without(python):
    return lambda missing, *words: python(WITHOUT.format(missing=missing, words=["principal", *map(str, words)]))


def test_what_is_missing_is_named(principal_without, language):
    done = principal_without(("tokenizers",), "generate", language, "A mill")
    assert done.returncode == 1
    assert (
        done.stderr
        == "principal generate: tokenizers is not installed; install it with pip install 'principal-attention[all]'\n"
    )


def test_images_need_no_library_of_texts(principal_without, trained, folder, tmp_path):
    how = ("--data", folder, "--suite", "clean,attacks", "--attacks", "fgsm", "--limit", 8, "--out", tmp_path)
    done = principal_without(ONLY_TEXTS_NEED, "evaluate", trained, *how)
    assert done.returncode == 0, done.stderr
    assert "fgsm" in done.stdout


def test_texts_need_no_library_of_images(principal_without, language, classifier, lines, classes, tmp_path):
    seconds = ("timm", "torchvision")  # only training needs timm; evaluation starts faster without
    for model, data in ((language, lines), (classifier, classes)):
        how = ("evaluate", model, "--data", data, "--limit", 8, "--out", tmp_path / model.name)
        done = principal_without((*ONLY_IMAGES_NEED, *seconds), *how)
        assert done.returncode == 0, done.stderr
    done = principal_without((*ONLY_IMAGES_NEED, *seconds), "generate", language, "A mill", "--tokens", 3)
    assert (done.returncode, done.stdout[:6]) == (0, "A mill")
    how = ("schedule.steps=2", "schedule.warmup_epochs=0", "model.options.depth=1", "model.options.context=8")
    words = ("train", "wikitext_small/rpc_symlm", f"data.source={lines}", "data.min_count=1", *how)
    done = principal_without(ONLY_IMAGES_NEED, *words, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
