"""Trained models in the folder PRINCIPAL_DATA: DeiT-tiny and all-MiniLM-L6-v2."""

import math
import os
from pathlib import Path

import pytest
import torch

import principal_attention as pa
from principal_attention import Pursuit

DATA = Path(os.environ.get("PRINCIPAL_DATA", "/nowhere"))
SENTENCES = (
    "A robust estimator ignores a few wild observations.",
    "The cat sat on the mat.",
    "Attention weighs the values of a sequence by the likeness of its queries and keys, and so it has been compared to "
    "kernel methods ever since.",
    "No.",
    "Rain is expected in the north by the evening, with wind from the sea.",
)


def needs(folder):
    missing = not (DATA / folder).is_dir()
    return pytest.mark.skipif(missing, reason=f"PRINCIPAL_DATA names no folder that holds {folder}/")


@pytest.fixture(scope="module")
def minilm():
    from transformers import AutoModel, AutoTokenizer

    folder = DATA / "minilm-l6"
    return AutoModel.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)


def embed(model, tokenizer, sentences):
    """Mean over unpadded tokens, as defined by the model's authors."""
    given = tokenizer(list(sentences), padding=True, return_tensors="pt")
    states, mask = model(**given).last_hidden_state, given["attention_mask"][..., None]
    return (states * mask).sum(1) / mask.sum(1)


@needs("minilm-l6")
@pytest.mark.parametrize("preset", pa.PRESETS)
@torch.no_grad()
def test_a_padded_batch_of_sentences_is_its_sentences(minilm, preset):
    model, tokenizer = minilm
    for n, lam in ((2, 0.3), (4, 4.0), (6, 1.0)):
        for dtype, tolerance in ((torch.float32, 1e-3), (torch.float64, 1e-6)):
            pa.robustify(model.to(dtype), pursuit=Pursuit(n, lam, preset))
            batch = embed(model, tokenizer, SENTENCES)
            alone = torch.cat([embed(model, tokenizer, [sentence]) for sentence in SENTENCES])
            assert (batch - alone).abs().max() < tolerance * alone.abs().max()
    pa.restore(model.float())


@needs("minilm-l6")
@torch.no_grad()
def test_embeddings_with_cleaned_keys_stay_close_and_those_of_the_paper_do_not(minilm):
    model, tokenizer = minilm
    plain = embed(model, tokenizer, SENTENCES)

    def cosine(pursuit):
        pa.robustify(model, pursuit=pursuit)
        return torch.cosine_similarity(embed(model, tokenizer, SENTENCES), plain).min()

    assert cosine(Pursuit(1, math.inf)) > 1 - 1e-6
    assert cosine(Pursuit(4, math.inf, "cleaned")) > 1 - 1e-6
    assert cosine(Pursuit(4, 1.0, "cleaned")) > 0.99
    assert cosine(Pursuit(4, 4.0, "paper")) < 0.9  # needs fine-tuning: docs/results/drop-in.md
    pa.restore(model)
    assert torch.equal(embed(model, tokenizer, SENTENCES), plain)


@needs("deit-tiny")
@torch.no_grad()
def test_deit_tiny_without_shrinkage_gives_its_own_logits():
    import timm
    from safetensors.torch import load_file

    model = timm.create_model("deit_tiny_patch16_224").eval()
    model.load_state_dict(load_file(DATA / "deit-tiny" / "model.safetensors"))
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    plain = model(images)
    for pursuit in (Pursuit(1, math.inf), Pursuit(4, math.inf, "cleaned")):
        pa.robustify(model, pursuit=pursuit, layers="all")
        assert (model(images) - plain).abs().max() < 1e-5 * plain.abs().max()
    assert torch.equal(pa.restore(model)(images), plain)
