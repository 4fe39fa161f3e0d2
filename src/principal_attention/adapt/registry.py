"""Classes of attention modules that `robustify` accepts; listed by name, so that their libraries are not imported."""

import inspect

from torch import nn

from ..errors import DtypeError

_KNOWN = {
    # The forward of these classes calls scaled_dot_product_attention once, with q, k and v of one sequence.
    "timm.layers.attention.Attention",
    "timm.layers.attention.AttentionRope",
    "timm.models.beit.Attention",
    "timm.models.eva.EvaAttention",
    "timm.models.vision_transformer.ParallelScalingBlock",
    "timm.models.vision_transformer_relpos.RelPosAttention",
    # The forward of these classes calls transformers' attention interface once, with q, k and v of one sequence.
    "transformers.models.bert.modeling_bert.BertSelfAttention",
    "transformers.models.deit.modeling_deit.DeiTAttention",
    "transformers.models.distilbert.modeling_distilbert.DistilBertSelfAttention",
    "transformers.models.gpt2.modeling_gpt2.GPT2Attention",
    "transformers.models.llama.modeling_llama.LlamaAttention",
    "transformers.models.roberta.modeling_roberta.RobertaSelfAttention",
    "transformers.models.vit.modeling_vit.ViTAttention",
}
_REGISTERED: set[type[nn.Module]] = set()


def register(*classes: type[nn.Module]) -> None:
    """Make `robustify` accept modules of these classes.

    Their forward must call `scaled_dot_product_attention` or transformers' attention interface exactly once, with
    queries, keys and values of one sequence.
    """
    for each in classes:
        if not isinstance(each, type) or not issubclass(each, nn.Module):
            raise DtypeError(f"{each!r} is not a class of torch.nn.Module; register the class of your attention module")
        _REGISTERED.add(each)


def is_known(module: nn.Module) -> bool:
    return any(c in _REGISTERED or f"{c.__module__}.{c.__qualname__}" in _KNOWN for c in type(module).__mro__)


def calls(cls: type[nn.Module], name: str) -> bool:
    """Whether the forward of `cls` refers to a function of this name."""
    return name in getattr(getattr(inspect.unwrap(cls.forward), "__code__", None), "co_names", ())
