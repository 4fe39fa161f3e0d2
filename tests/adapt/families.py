"""One small untrained model per family that `robustify` supports, its inputs, and its outputs at unpadded tokens."""

from functools import partial

import torch
from torch import nn

import principal_attention as pa

N, WIDTH, HEADS, DEPTH, WORDS = 11, 48, 4, 3, 50


def sizes(**more):
    return dict(
        hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=64, **more,
    )  # fmt: skip


def _timm(name, **options):
    def build():
        import timm
        from timm.models.vision_transformer import ParallelScalingBlock

        block = {"block_fn": ParallelScalingBlock} if options.get("block_fn") == "parallel" else {}
        return timm.create_model(name, img_size=32, num_classes=10, **options | block)

    return build


def _hf(model, config, **options):
    def build():
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**options))

    return build


def _encoder(norm_first=False):
    layer = partial(nn.TransformerEncoderLayer, WIDTH, HEADS, 64, batch_first=True, norm_first=norm_first)
    return lambda: nn.TransformerEncoder(layer(), DEPTH, enable_nested_tensor=not norm_first)


class Ours(nn.Module):
    def __init__(self, mechanism=None):
        super().__init__()
        self.layers = nn.Sequential(*(pa.SelfAttention(WIDTH, HEADS, mechanism) for _ in range(DEPTH)))

    def forward(self, x):
        return self.layers(x)


def _torchvision():
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, DEPTH, HEADS, WIDTH, 64, num_classes=10)


VIT = dict(patch_size=8, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS)
WORDY = dict(vocab_size=WORDS, max_position_embeddings=64)
IMAGES = dict(image_size=32, patch_size=8)
FAMILIES = {
    "timm vit": _timm("vit_tiny_patch16_224", **VIT),
    "timm deit": _timm("deit_tiny_distilled_patch16_224", **VIT),
    "timm deit3": _timm("deit3_small_patch16_224", **VIT),
    "timm q/k norms": _timm("vit_tiny_patch16_224", **VIT, qk_norm=True, scale_attn_norm=True),
    "timm beit": _timm("beit_base_patch16_224", **VIT, use_rel_pos_bias=True),
    "timm beit, shared bias": _timm(
        "beit_base_patch16_224", **VIT, use_rel_pos_bias=False, use_shared_rel_pos_bias=True
    ),
    "timm eva02": _timm("eva02_tiny_patch14_224", **VIT),
    "timm rope": _timm("vit_small_patch16_rope_224", **VIT),
    "timm relpos": _timm("vit_relpos_small_patch16_224", **VIT),
    "timm parallel": _timm("vit_tiny_patch16_224", **VIT, block_fn="parallel"),
    "bert": _hf("BertModel", "BertConfig", **sizes(), **WORDY),
    "roberta": _hf("RobertaModel", "RobertaConfig", **sizes(), **WORDY | {"max_position_embeddings": 66}),
    "distilbert": _hf(
        "DistilBertModel", "DistilBertConfig", dim=WIDTH, n_layers=DEPTH, n_heads=HEADS, hidden_dim=64, **WORDY
    ),
    "hf vit": _hf("ViTForImageClassification", "ViTConfig", **sizes(), **IMAGES),
    "hf deit": _hf("DeiTForImageClassification", "DeiTConfig", **sizes(), **IMAGES),
    "gpt2": _hf(
        "GPT2LMHeadModel", "GPT2Config",
        n_embd=WIDTH, n_layer=DEPTH, n_head=HEADS, n_positions=64, vocab_size=WORDS, bos_token_id=1, eos_token_id=2,
    ),
    "llama": _hf("LlamaForCausalLM", "LlamaConfig", **sizes(num_key_value_heads=2), **WORDY),
    "torch.nn encoder": _encoder(),
    "torch.nn encoder, norm first": _encoder(norm_first=True),
    "torchvision vit": _torchvision,
    "ours": Ours,
    "ours, symmetric": lambda: Ours(pa.Symmetric()),
}  # fmt: skip
TEXT = ("bert", "roberta", "distilbert", "gpt2", "llama")
TRANSFORMERS = (*TEXT, "hf vit", "hf deit")
CAUSAL = ("gpt2", "llama")


def build(name, dtype=torch.float32):
    """Enlarge the weights, so that attention is not uniform and the pursuit has an effect."""
    torch.manual_seed(0)
    model = FAMILIES[name]().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.2)
            elif "gamma" in key:  # layer scale starts at 1e-6
                parameter.fill_(1.0)
    return model.to(dtype)


def inputs(name, dtype=torch.float32):
    torch.manual_seed(1)
    if name in TEXT:
        mask = torch.ones(2, N, dtype=torch.long)
        mask[0, :4] = 0  # left padding, as batched generation has it
        return {"input_ids": torch.randint(3, WORDS, (2, N)), "attention_mask": mask}
    if name.startswith(("torch.nn", "ours")):
        return {("src" if "nn" in name else "x"): torch.randn(2, N, WIDTH, dtype=dtype)}
    image = torch.randn(2, 3, 32, 32, dtype=dtype)
    return {"pixel_values" if name in TRANSFORMERS else "x": image}


def run(name, model, dtype=torch.float32):
    """Outputs at unpadded tokens."""
    given = inputs(name, dtype)
    out = model(**given)
    out = out if isinstance(out, torch.Tensor) else out[0]
    return out[given["attention_mask"].bool()] if "attention_mask" in given else out


def positions(name, mask):
    """Positions that count unpadded tokens, as in `generate` and with padding on the right."""
    if name == "distilbert":
        return {}  # it takes none
    return {"position_ids": (mask.long().cumsum(-1) - 1).clamp(min=0) + (2 if name == "roberta" else 0)}
