"""Put RPC-Attention into a Hugging Face model, fine-tune it, save it, and load it again.

    .venv/bin/python examples/harden_huggingface.py

The data are scikit-learn's digits as text: 64 words per image, from a vocabulary of 17 grey levels. A small BERT is
trained to classify them, then fine-tuned with RPC-Attention in all layers, and tested on clean texts and with one word
in ten replaced. It takes about a minute on two cores. With one seed only, this is a demonstration, not a measurement.
To use your own weights, start from `AutoModelForSequenceClassification.from_pretrained(folder)`.
"""

import argparse
import tempfile

import principal_attention as pa  # isort: skip (first: lets transformers import with a CPU build of torch)
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification, logging

GREYS = 17
logging.set_verbosity_error()


def learn(model: BertForSequenceClassification, words: Tensor, labels: Tensor, epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(32):
            optimizer.zero_grad()
            model(input_ids=words[batch], labels=labels[batch]).loss.backward()
            optimizer.step()


@torch.no_grad()
def report(title: str, model: BertForSequenceClassification, words: Tensor, labels: Tensor) -> None:
    random = torch.Generator().manual_seed(1)
    hit = torch.rand(words.shape, generator=random) < 0.1
    swapped = torch.where(hit, torch.randint(GREYS, words.shape, generator=random), words)
    right = [(model.eval()(input_ids=x).logits.argmax(-1) == labels).float().mean().item() for x in (words, swapped)]
    print(f"{title:42} clean {100 * right[0]:5.1f}%   swapped {100 * right[1]:5.1f}%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12, help="training epochs; fine-tuning: a quarter (default: 12)")
    epochs = parser.parse_args().epochs
    torch.manual_seed(0)
    words, labels = (torch.tensor(x).long() for x in (load_digits().data, load_digits().target))
    order = torch.randperm(len(labels))
    words, labels = words[order], labels[order]
    learnt, test = (words[:1300], labels[:1300]), (words[1300:], labels[1300:])

    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    config = BertConfig(vocab_size=GREYS, num_labels=10, initializer_range=0.1, **sizes)
    model = BertForSequenceClassification(config)
    learn(model, *learnt, epochs)
    report("as trained", model, *test)

    pa.robustify(model, pursuit=pa.Pursuit(2, 0.25, "cleaned"), layers="all")
    report("with RPC-Attention, not fine-tuned", model, *test)
    learn(model, *learnt, max(1, epochs // 4))
    report("with RPC-Attention, fine-tuned", model, *test)

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        report("saved and loaded again", AutoModelForSequenceClassification.from_pretrained(folder), *test)
    report("the same weights, RPC-Attention taken out", pa.restore(model), *test)


if __name__ == "__main__":
    main()
