"""Small texts to train on, and recipes for them."""

import datasets
import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

PARAGRAPH = (
    "A mill stood by the river where the road turned to the sea . Each morning the miller opened its gate , and a "
    "wheel began to turn . His daughter counted sacks , wrote their number in grey books , and sang . One winter "
    "all froze ; nobody sang until spring ."
)

QUICK_LANGUAGE = (
    "model.options.depth=2", "model.options.embed_dim=16", "model.options.num_heads=2", "model.options.inner_dim=24",
    "model.options.context=12", "model.options.cutoffs=[10]", "data.min_count=1", "schedule.epochs=3",
    "schedule.warmup_epochs=0.5", "training.batch_size=4", "training.log_every=1",
)  # fmt: skip


def write_letters(folder, texts=(), size=256):
    """A tokenizer.json of bytes, and of what `texts` have in common up to `size` tokens; returns the folder."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    alphabet = ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write_lines(folder):
    """Some hundred lines of like words, in splits named as WikiText's; returns the folder."""
    random = np.random.default_rng(0)
    words = PARAGRAPH.split()
    for split, count in (("train", 60), ("validation", 20), ("test", 20)):
        lines = [" ".join(random.choice(words, random.integers(3, 15))) for _ in range(count)]
        datasets.Dataset.from_dict({"text": lines}).to_parquet(folder / f"{split}.parquet")
    return folder


def write_classes(folder, *, test=False):
    """Texts that are about winter or about spring; returns the folder."""
    random = np.random.default_rng(1)
    words = [word for word in PARAGRAPH.split() if word not in ("winter", "spring")]
    for split, count in (("train", 96), ("validation", 40), *([("test", 40)] if test else [])):
        labels = random.integers(0, 2, count).tolist()
        texts = []
        for label in labels:
            text = list(random.choice(words, random.integers(2, 9)))
            text.insert(random.integers(len(text)), ("winter", "spring")[label])
            texts.append(" ".join(text))
        datasets.Dataset.from_dict({"sentence": texts, "label": labels}).to_parquet(folder / f"{split}.parquet")
    return folder
