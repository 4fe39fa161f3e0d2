import pytest
import torch

from principal_attention.language.config import LanguageConfig
from principal_attention.language.model import LanguageModel
from small_models import KINDS, SIZES


@pytest.fixture
def build():
    """build(kind, **options): a language model in eval mode with 60 tokens and large weights."""

    def make(kind: str = "softmax", **options) -> LanguageModel:
        torch.manual_seed(0)
        model = LanguageModel(LanguageConfig(**(SIZES | KINDS[kind] | options)))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return model.eval()

    return make


@pytest.fixture
def tokens():
    return torch.randint(60, (3, 24), generator=torch.Generator().manual_seed(1))
