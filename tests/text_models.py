"""Models, data and commands for the tests of text."""

import torch
from typer.testing import CliRunner

from principal_attention.cli.app import app
from principal_attention.language.config import LanguageConfig
from principal_attention.language.model import LanguageModel
from principal_attention.language.vocabulary import size_of

CONTEXT = 10


def principal(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "140"})


def language_model(tokenizer):
    torch.manual_seed(0)
    rpc = {"form": "query", "layers": {"0": {"iterations": 3, "lam": 0.5, "preset": "paper"}}}
    sizes = dict(context=CONTEXT, depth=2, embed_dim=16, num_heads=2, inner_dim=24, cutoffs=[10])
    model = LanguageModel(LanguageConfig(vocab_size=size_of(tokenizer), attention="symmetric", rpc=rpc, **sizes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()
