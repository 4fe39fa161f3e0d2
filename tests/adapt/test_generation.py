"""Generation with a cache gives the same tokens as without."""

import pytest
import torch

import principal_attention as pa
from families import CAUSAL, build, inputs, positions
from principal_attention import InputError, Pursuit

STRATEGIES = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True, "num_return_sequences": 2},
}
PURSUITS = {
    "paper": Pursuit(4, 0.3),
    "authors": Pursuit(2, 0.3, "authors"),
    "admm": Pursuit(3, 0.3, "admm"),
    "cleaned": Pursuit(3, 0.2, "cleaned"),
}


def generate(model, given, seed=0, **options):
    torch.manual_seed(seed)
    defaults = dict(max_new_tokens=14, min_new_tokens=14, pad_token_id=0, do_sample=False)
    return model.generate(**given, **defaults | options)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("preset", PURSUITS)
@pytest.mark.parametrize("name", CAUSAL)
def test_cached_generation_is_uncached_generation(name, preset, strategy):
    """In a left-padded batch; float64, because σ = −1 doubles rounding errors and ties could change."""
    model = pa.robustify(build(name, torch.float64), pursuit=PURSUITS[preset], layers="all")
    options = STRATEGIES[strategy]
    assert torch.equal(
        generate(model, inputs(name), use_cache=True, **options),
        generate(model, inputs(name), use_cache=False, **options),
    )


@pytest.mark.parametrize("name", CAUSAL)
def test_speculative_decoding_crops_the_cache(name):
    model = pa.robustify(build(name, torch.float64), pursuit=Pursuit(4, 0.3), layers=[0, 2])
    one = {"input_ids": torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]])}
    drafted = generate(model, one, use_cache=True, prompt_lookup_num_tokens=4)
    assert torch.equal(drafted, generate(model, one, use_cache=False))


@pytest.mark.parametrize("form", ["query", "symmetric"])
@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_chunks_through_the_cache_give_the_logits_of_one_call(name, form):
    from transformers import DynamicCache

    model = pa.robustify(build(name, torch.float64), pursuit=Pursuit(4, 0.3), layers=[0, 1], form=form)
    given = inputs(name)
    ids, mask = given["input_ids"], given["attention_mask"]
    full = model(ids, attention_mask=mask, use_cache=False, **positions(name, mask))[0]
    for cache in (DynamicCache(), DynamicCache(config=model.config)):
        rows, start = [], 0
        for size in (5, 1, 3, 2):
            new = slice(start, start + size)
            placed = {k: v[:, new] for k, v in positions(name, mask).items()}
            out = model(ids[:, new], attention_mask=mask[:, : start + size], past_key_values=cache, **placed)
            rows.append(out.logits)
            start += size
            assert cache.get_seq_length() == cache.get_seq_length(2) == start  # chosen and plain layers agree
        valid = mask.bool()
        assert (torch.cat(rows, 1) - full)[valid].abs().max() < 1e-9 * full.abs().max()


@torch.no_grad()
def test_a_cache_reset_selected_and_repeated():
    from transformers import DynamicCache

    model = pa.robustify(build("llama", torch.float64), pursuit=Pursuit(4, 0.3), layers="all")
    ids, more = inputs("llama")["input_ids"], torch.tensor([[4], [9], [7], [8]])
    cache = DynamicCache(config=model.config)
    model(ids, past_key_values=cache)
    cache.batch_repeat_interleave(2)
    torch.testing.assert_close(
        model(more, past_key_values=cache).logits[:, -1],
        model(torch.cat([ids.repeat_interleave(2, 0), more], 1), use_cache=False).logits[:, -1],
    )
    cache.crop(-1)
    cache.batch_select_indices(torch.tensor([3, 0]))
    torch.testing.assert_close(
        model(more[:2], past_key_values=cache).logits[:, -1],
        model(torch.cat([ids.flip(0), more[:2]], 1), use_cache=False).logits[:, -1],
    )
    cache.reset()
    assert cache.get_seq_length() == 0
    torch.testing.assert_close(model(ids, past_key_values=cache).logits, model(ids, use_cache=False).logits)


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_a_mask_may_hide_earlier_tokens_while_decoding(name):
    """Masks with two or four dimensions, compared with the original model."""
    from transformers import DynamicCache

    ids = inputs(name)["input_ids"]
    shown = torch.ones(2, 11, dtype=torch.long)
    shown[:, 2:5] = 0
    model, outs = build(name, torch.float64), []
    for robust in (False, True):
        if robust:
            pa.robustify(model, pursuit=Pursuit(1, float("inf")), layers="all")
        for mask in (shown, shown[:, None, None].bool()):
            cache = DynamicCache(config=model.config)
            model(ids[:, :10], past_key_values=cache)
            outs.append(
                model(ids[:, 10:], attention_mask=mask, past_key_values=cache, **positions(name, shown[:, :1])).logits
            )
    for out in outs[1:]:
        torch.testing.assert_close(out, outs[0])


@torch.no_grad()
def test_a_prompt_of_one_token_with_a_mask_of_its_own():
    from transformers import DynamicCache

    model, ids = pa.robustify(build("llama", torch.float64), pursuit=Pursuit(3, 0.3)), inputs("llama")["input_ids"]
    cache = DynamicCache(config=model.config)
    first = model(ids[:, :1], attention_mask=torch.ones(2, 1, 1, 1, dtype=torch.bool), past_key_values=cache).logits
    second = model(ids[:, 1:2], past_key_values=cache).logits
    torch.testing.assert_close(torch.cat([first, second], 1), model(ids[:, :2], use_cache=False).logits)


def test_caches_that_cannot_be_exact_are_refused():
    from transformers import DynamicCache, StaticCache

    model, ids = pa.robustify(build("llama"), pursuit=Pursuit(4, 0.3)), inputs("llama")["input_ids"]
    static = StaticCache(config=model.config, max_cache_len=32)
    with pytest.raises(InputError, match=r"layer 0 of the cache is a StaticLayer; .* use_cache=False"):
        model(ids, past_key_values=static)
    with pytest.raises(InputError, match="is a StaticLayer"):
        generate(model, {"input_ids": ids}, cache_implementation="static")
    filled = DynamicCache(config=model.config)
    build("llama")(ids, past_key_values=filled)
    with pytest.raises(InputError, match="one filled without RPC-Attention"):
        model(ids, past_key_values=filled)
    used = DynamicCache(config=model.config)
    model(ids, past_key_values=used)
    with pytest.raises(InputError, match="filled with RPC-Attention and is now given to a layer without"):
        build("llama")(ids[:, :1], past_key_values=used)
    plain = torch.ones(2, 1, 11, 11, dtype=torch.bool)  # rows that see later keys cannot stay as they are
    with pytest.raises(InputError, match="use_cache=False"):
        model(ids, attention_mask=plain, past_key_values=DynamicCache(config=model.config))
    assert model(ids, attention_mask=plain, use_cache=False).logits.isfinite().all()


@torch.no_grad()
def test_a_bert_that_decodes():
    from transformers import BertConfig, BertLMHeadModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, vocab_size=50, is_decoder=True
    )
    model = pa.robustify(BertLMHeadModel(config).double().eval(), pursuit=Pursuit(3, 0.3), layers="all")
    ids = torch.randint(3, 50, (2, 7))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    cached = generate(model, given, use_cache=True, eos_token_id=None, bos_token_id=1)
    assert torch.equal(cached, generate(model, given, use_cache=False, eos_token_id=None, bos_token_id=1))
