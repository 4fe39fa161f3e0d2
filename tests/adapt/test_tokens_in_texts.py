"""Token pursuit and the controls in models of texts: causality, cached generation, padding."""

import pytest
import torch

import principal_attention as pa
from families import CAUSAL, TEXT, WORDS, build, inputs, positions, run
from principal_attention import InputError, TokenPursuit
from test_token_pursuit import calibrated, clean


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_no_later_token_changes_an_earlier_logit(name):
    for setting in (TokenPursuit(0.7), pa.TokenReweighting("l1"), pa.Temperature(0.7)):
        data = clean(name) if isinstance(setting, TokenPursuit) else None
        model = pa.robustify(build(name), pursuit=setting, layers="all", calibrate=data)
        ids = inputs(name)["input_ids"]
        edited = ids.clone()
        edited[:, 6:] = (edited[:, 6:] + 1) % WORDS
        assert torch.equal(model(ids)[0][:, :6], model(edited)[0][:, :6])
        assert not torch.equal(model(ids)[0][:, 6:], model(edited)[0][:, 6:])


@torch.no_grad()
def test_a_causal_model_needs_calibration():
    model = pa.robustify(build("gpt2"), pursuit=TokenPursuit())
    with pytest.raises(InputError, match="causal model needs statistics of clean keys: pass calibrate"):
        run("gpt2", model)


@pytest.mark.parametrize("strategy", ["greedy", "beams", "drafts"])
@pytest.mark.parametrize("name", CAUSAL)
def test_cached_generation_is_uncached_generation(name, strategy):
    options = {"greedy": {}, "beams": {"num_beams": 3}, "drafts": {"prompt_lookup_num_tokens": 4}}[strategy]
    one = {"input_ids": torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]])}
    given = one if strategy == "drafts" else inputs(name)
    for setting in (TokenPursuit(0.6, 5.0), pa.TokenReweighting("huber"), pa.Temperature(1.5)):
        data = clean(name) if isinstance(setting, TokenPursuit) else None
        layers = [0, 2] if data is not None else "all"
        model = pa.robustify(build(name, torch.float64), pursuit=setting, layers=layers, calibrate=data)
        base = dict(max_new_tokens=12, min_new_tokens=12, pad_token_id=0, do_sample=False)
        cached = model.generate(**given, **base, use_cache=True, **options)
        uncached = {} if strategy == "drafts" else options
        assert torch.equal(cached, model.generate(**given, **base, use_cache=False, **uncached))


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_chunks_through_the_cache_give_the_logits_of_one_call(name):
    from transformers import DynamicCache

    model = calibrated(name, torch.float64, layers=[0, 1], quantile=0.6, strength=5.0)
    given = inputs(name)
    ids, mask = given["input_ids"], given["attention_mask"]
    full = model(ids, attention_mask=mask, use_cache=False, **positions(name, mask))[0]
    cache, rows, start = DynamicCache(), [], 0
    for size in (5, 1, 3, 2):
        new = slice(start, start + size)
        placed = {k: v[:, new] for k, v in positions(name, mask).items()}
        rows.append(model(ids[:, new], attention_mask=mask[:, : start + size], past_key_values=cache, **placed).logits)
        start += size
    valid = mask.bool()
    assert (torch.cat(rows, 1) - full)[valid].abs().max() < 1e-9 * full.abs().max()
    assert type(cache.layers[2]).__name__ == "DynamicLayer"  # of a layer that was not chosen
    filled = DynamicCache()
    build(name, torch.float64)(ids, past_key_values=filled)
    with pytest.raises(InputError, match="layer 0 of the cache is one filled without RPC-Attention"):
        model(ids[:, :1], past_key_values=filled)


@pytest.mark.parametrize("name", TEXT)
@torch.no_grad()
def test_padding_changes_nothing(name):
    given = inputs(name)
    if name == "distilbert":
        given = {key: x.flip(1) for key, x in given.items()}
    settings = [(TokenPursuit(0.6, 5.0), clean(name))]
    settings += [] if name in CAUSAL else [(TokenPursuit(0.6, 5.0), None)]
    settings += [(pa.TokenReweighting("mcp"), None), (pa.Temperature(0.5), None)]
    for setting, data in settings:
        model = pa.robustify(build(name, torch.float64), pursuit=setting, layers="all", calibrate=data)
        batch = model(**given, **positions(name, given["attention_mask"]))[0]
        for ids, mask, rows in zip(given["input_ids"], given["attention_mask"].bool(), batch, strict=True):
            alone = model(ids[mask][None], **positions(name, torch.ones(1, int(mask.sum()))))
            assert (rows[mask] - alone[0][0]).abs().max() < 1e-8 * alone[0].abs().max()
