"""Small language models that cover all options."""

PURSUIT = {"iterations": 4, "lam": 0.5, "preset": "paper"}  # a threshold at which much is shrunk
RPC = {"form": "query", "layers": {"0": PURSUIT, "1": PURSUIT}}
SIZES = dict(vocab_size=60, context=24, depth=2, embed_dim=32, num_heads=2, inner_dim=48, cutoffs=[10, 30])
KINDS = {
    "softmax": {},
    "symmetric": {"attention": "symmetric"},
    "each its own": {"attention": ["symmetric", "softmax"]},
    "rpc": {"rpc": RPC},
    "rpc symmetric": {"attention": "symmetric", "rpc": RPC},
    "experts": {"experts": 6, "inner_dim": 40},
    "experts with rpc": {"experts": 6, "inner_dim": 40, "attention": "symmetric", "rpc": RPC},
    "learned positions": {"positions": "learned", "norm": "pre", "activation": "gelu", "qkv_bias": True},
    "one softmax": {"cutoffs": []},
}
