"""Small models of every kind, and what they are measured on."""

import pytest
import torch
from PIL import Image

import principal_attention as pa
from evaluated import CLASSES, OPTIONS, create, fit, pictures, save
from principal_attention.language.classifier import LastPosition
from principal_attention.language.folder import Reading, write_classifier, write_language_model
from principal_attention.language.texts import open_split
from principal_attention.language.vocabulary import count_words
from small_texts import write_classes, write_lines
from text_models import CONTEXT, language_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """60 pictures as class folders, with a name that sorts them as the classes are."""
    root = tmp_path_factory.mktemp("pictures")
    images, labels = pictures(60, seed=1)
    for i, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        file = root / "val" / CLASSES[label] / f"{i:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255).byte().permute(1, 2, 0).numpy()).save(file)
    return root


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a SymViT."""
    torch.manual_seed(0)
    return save(fit(create("symvit_tiny_patch16_224", **OPTIONS)), tmp_path_factory.mktemp("models") / "sym")


@pytest.fixture(scope="session")
def pursuing(tmp_path_factory):
    """The folder of an RPC-SymViT that cuts some of its keys."""
    torch.manual_seed(0)
    options = OPTIONS | {"pursuit": {"iterations": 2, "lam": 0.3, "preset": "cleaned"}, "layers": "all"}
    made = OPTIONS | {"pursuit": pa.Pursuit(2, 0.3, "cleaned"), "layers": "all"}
    model = fit(create("rpc_symvit_tiny_patch16_224", **made))
    return save(model, tmp_path_factory.mktemp("models") / "rpc", options=options)


@pytest.fixture(scope="session")
def lines(tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("classes"), test=True)


@pytest.fixture(scope="session")
def language(lines, tmp_path_factory):
    """The folder of a language model with an RPC layer."""
    tokenizer = count_words(open_split(str(lines), "train", labelled=False).texts)
    folder = tmp_path_factory.mktemp("models") / "language"
    write_language_model(folder, language_model(tokenizer), tokenizer)
    return folder


@pytest.fixture(scope="session")
def classifier(classes, tmp_path_factory):
    tokenizer = count_words(open_split(str(classes), "train", labelled=True).texts)
    model = LastPosition(language_model(tokenizer), 2)
    torch.nn.init.normal_(model.classify.weight)
    folder = tmp_path_factory.mktemp("models") / "classifier"
    write_classifier(folder, model, tokenizer, Reading(classes=2, length=CONTEXT))
    return folder
