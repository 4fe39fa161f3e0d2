"""Text classifiers from our language models and from transformers' encoders."""

import json
from itertools import product

import datasets
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from principal_attention.cli.app import app
from principal_attention.errors import InputError
from principal_attention.language.folder import read_classifier
from principal_attention.language.load import load_classifier
from principal_attention.plumbing.files import read_jsonl
from principal_attention.plumbing.processes import Place
from principal_attention.tasks import read_recipe
from principal_attention.tasks.text_classes.training import TextTask
from small_texts import PARAGRAPH, write_classes


def test_a_language_model_becomes_a_classifier(learn, quick, classes, tmp_path):
    learn(tmp_path / "language", recipe="wikitext_small/smoe")
    for mark in (False, True):
        folder = tmp_path / f"classifier-{mark}"
        done = quick(
            folder, f"data.source={classes}", f"init_from={tmp_path / 'language'}", f"mark={mark}",
            "schedule.epochs=12", "optimizer.lr=1e-2", "training.batch_size=8", recipe="text/rpc_sst2", base=(),
        )  # fmt: skip
        assert done.metrics["top1"] > 0.8  # chance level is 0.5; one of eight words determines the class
        found = {(e["case"], e["metric"]): e["value"] for e in read_jsonl(folder / "records.jsonl")}
        assert set(found) == {(c, m) for c in ("train", "validation", "test") for m in ("top1", "loss")}
        model, _, reading = read_classifier(folder)
        assert reading.mark is mark
        assert len(model.language.config.rpc["layers"]) == model.language.config.depth


def test_the_papers_third_model_learns_five_classes(learn, quick, tmp_path):
    """As in the recipes for SST-5: learned positions, a mark after the last word, RPC-Attention during fine-tuning."""
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0", recipe="wikitext_small/gpt")
    data = tmp_path / "data"
    data.mkdir()
    words = ("river", "road", "wheel", "gate", "sea")
    for split in ("train", "validation", "test"):
        texts = [f"the {words[i % 5]} began" for i in range(100)]
        rows = datasets.Dataset.from_dict({"text": texts, "label": [i % 5 for i in range(100)]})
        rows.to_parquet(data / f"{split}.parquet")
    done = quick(
        tmp_path / "run", f"data.source={data}", f"init_from={tmp_path / 'language'}", "schedule.warmup_steps=5",
        "schedule.epochs=10", "optimizer.lr=1e-2", "training.batch_size=10", recipe="text/rpc_sst5", base=(),
    )  # fmt: skip
    assert done.metrics["top1"] > 0.9
    model, _, reading = read_classifier(tmp_path / "run")
    assert (reading.classes, reading.mark, model.language.positions is not None) == (5, True, True)


def test_texts_in_ordinary_spelling_are_brought_into_wikitexts(learn, classes, tmp_path):
    """With data.split, as in the recipes for IMDB."""
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0")
    how = [f"init_from={tmp_path / 'language'}", f"data.source={classes}"]
    found = {}
    for split in (False, True):
        tokenize = TextTask(read_recipe("text/sst2", [*how, f"data.split={split}"])).classifier.tokenize
        found[split] = tokenize(["froze; nobody sang.", "froze ; nobody sang ."])
    assert found[True][0] == found[True][1] == found[False][1] != found[False][0]
    assert read_recipe("text/imdb", how).data.split is True


def test_a_batch_that_cannot_be_divided_leaves_the_folder_free(learn, quick, classes, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0")
    how = (f"data.source={classes}", f"init_from={tmp_path / 'language'}", "training.accumulate=2")
    with pytest.raises(InputError, match="batch_size is 9"):
        quick(tmp_path / "run", *how, "training.batch_size=9", recipe="text/sst2", base=())
    assert not (tmp_path / "run" / "recipe.yaml").exists()


def test_other_texts_are_refused_on_resuming(quick, learn, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0")
    data = write_classes(tmp_path)
    words = (f"data.source={data}", f"init_from={tmp_path / 'language'}", "training.batch_size=8")
    quick(tmp_path / "run", *words, stop_after=3, recipe="text/sst2", base=())
    rows = datasets.Dataset.from_parquet(str(data / "train.parquet"), cache_dir=str(tmp_path / "cache")).to_dict()
    datasets.Dataset.from_dict(rows | {"label": [1 - x for x in rows["label"]]}).to_parquet(data / "train.parquet")
    with pytest.raises(InputError, match="differ from those that the run in"):
        quick(tmp_path / "run", *words, resume=True, recipe="text/sst2", base=())


def test_a_stopped_classifier_ends_where_an_unbroken_one_does(quick, learn, classes, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0", recipe="wikitext_small/smoe")
    words = (
        f"data.source={classes}",
        f"init_from={tmp_path / 'language'}",
        "training.batch_size=8",
        "schedule.epochs=2",
    )
    for name, stop in (("whole", None), ("broken", 5)):
        quick(tmp_path / name, *words, stop_after=stop, recipe="text/rpc_sst2", base=())
    quick(tmp_path / "broken", *words, resume=True, recipe="text/rpc_sst2", base=())
    whole, broken = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(whole[name], broken[name]) for name in whole)


def test_held_out_texts_can_be_measured_by_their_name(quick, learn, classes, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0")
    words = (f"data.source={classes}", f"init_from={tmp_path / 'language'}", "schedule.epochs=1")
    quick(tmp_path / "run", *words, "data.holdout=30", recipe="text/sst2", base=())
    done = CliRunner().invoke(
        app, ["evaluate", str(tmp_path / "run"), "--split", "holdout", "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    assert str(tmp_path / "out") in done.output.replace("\n", "")
    trained, found = (
        [e["value"] for e in read_jsonl(folder / "records.jsonl") if e["metric"] == "top1" and e["n"] == 30]
        for folder in (tmp_path / "run", tmp_path / "out")
    )
    assert trained == found


def test_classes_are_numbered_as_in_training(quick, learn, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0", recipe="wikitext_small/symlm")
    data = tmp_path / "data"
    data.mkdir()
    texts = ["the winter froze", "a spring sang"] * 40
    for split, names in (("train", ["cold", "warm"]), ("validation", ["warm", "cold"])):
        labels = [names.index(("cold", "warm")[i % 2]) for i in range(80)]
        features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
        datasets.Dataset.from_dict({"text": texts, "label": labels}, features).to_parquet(data / f"{split}.parquet")
    done = quick(
        tmp_path / "run", f"data.source={data}", f"init_from={tmp_path / 'language'}", "data.text=null",
        "schedule.epochs=4", "optimizer.lr=1e-2", recipe="text/sst2", base=(),
    )  # fmt: skip
    assert done.metrics["top1"] > 0.9
    assert read_classifier(tmp_path / "run")[2].labels == ["cold", "warm"]


def test_a_test_split_that_hides_its_classes_is_left_alone(quick, learn, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0", recipe="wikitext_small/symlm")
    data = write_classes(tmp_path)
    for hidden in ({"sentence": ["a mill"], "label": [-1]}, {"sentence": ["a mill"]}):
        datasets.Dataset.from_dict(hidden).to_parquet(data / "test.parquet")
        folder = tmp_path / f"run-{len(hidden)}"
        quick(folder, f"data.source={data}", f"init_from={tmp_path / 'language'}", "schedule.epochs=1",
              recipe="text/sst2", base=())  # fmt: skip
        assert {e["case"] for e in read_jsonl(folder / "records.jsonl")} == {"train", "validation"}


def test_texts_of_like_length_are_read_together(learn, classes, tmp_path):
    learn(tmp_path / "language")
    given = [f"data.source={classes}", f"init_from={tmp_path / 'language'}", "training.batch_size=8"]
    read = {True: 0, False: 0}
    for by_length, seed in product(read, range(5)):
        task = TextTask(read_recipe("text/sst2", [*given, f"data.by_length={by_length}", f"seed={seed}"]))
        masks = [mask for _, mask, _ in task.batches(range(task.plan.epoch_steps), Place(0, 1))]
        assert sum(int(mask.sum()) for mask in masks) == sum(map(len, task.splits["train"][0]))  # every text once
        read[by_length] += sum(mask.numel() for mask in masks)
    assert read[True] < 0.8 * read[False]  # lengths are even from 3 to 9: about 6 tokens a text instead of 9


def test_padding_does_not_change_an_answer(learn, quick, classes, tmp_path):
    """Mixture of experts, a mark after the last word, RPC in all layers."""
    learn(tmp_path / "language", recipe="wikitext_small/smoe")
    quick(tmp_path / "run", f"data.source={classes}", f"init_from={tmp_path / 'language'}", "mark=true",
          "schedule.epochs=1", recipe="text/rpc_sst2", base=())  # fmt: skip
    classifier = load_classifier(str(tmp_path / "run"))
    texts = ["winter", "the miller sang until spring in the grey book", "a river froze"]
    with torch.no_grad():
        classifier.model.double()
        together, alone = classifier.logits(texts), torch.cat([classifier.logits([text]) for text in texts])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("recipe", ["wikitext_small/smoe", "wikitext_small/rpc_symlm"])
def test_half_precision_learns_as_well(learn, quick, classes, tmp_path, recipe):
    done = learn(tmp_path / "language", "training.precision=bfloat16", "optimizer.lr=1e-2", recipe=recipe)
    assert done.metrics["perplexity"] < 49  # words in the vocabulary: better than a guess
    done = quick(
        tmp_path / "run", f"data.source={classes}", f"init_from={tmp_path / 'language'}", "schedule.epochs=2",
        "training.precision=bfloat16", recipe="text/rpc_sst2", base=(),
    )  # fmt: skip
    assert done.metrics["loss"] < 1


@pytest.fixture
def bert(tmp_path, lines):
    """Folder of a tiny BERT with its tokenizer, for `hf:`."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path / "bert"
    folder.mkdir()
    words = sorted({word.lower() for word in PARAGRAPH.split()})
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=5 + len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


def test_a_saved_encoder_reads_as_many_tokens_as_it_was_trained_with(quick, classes, bert, tmp_path):
    quick(tmp_path / "run", f"data.source={classes}", f"init_from=hf:{bert}", "data.length=5", "schedule.epochs=1",
          recipe="text/encoder", base=())  # fmt: skip
    (tokens,) = load_classifier(str(tmp_path / "run")).tokenize(["the river froze in the grey winter"])
    assert len(tokens) == 5


@pytest.mark.parametrize("rpc", [(), ("robustify.preset=cleaned", "robustify.iterations=3", "robustify.layers=all")])
def test_an_encoder_of_transformers_through_the_same_recipe(quick, classes, bert, tmp_path, rpc):
    done = quick(
        tmp_path / "run", f"data.source={classes}", f"init_from=hf:{bert}", "data.length=16", *rpc, "optimizer.lr=3e-3",
        "schedule.warmup_epochs=0", "training.batch_size=8", "schedule.epochs=8", recipe="text/encoder", base=(),
    )  # fmt: skip
    assert done.metrics["top1"] > 0.8
    card = json.loads((tmp_path / "run/config.json").read_text())
    assert bool(rpc) is ("rpc" in json.dumps(card))
    measured = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--out", str(tmp_path / "measured")])
    assert measured.exit_code == 0, measured.output
    (found,) = read_jsonl(tmp_path / "measured/records.jsonl")
    assert found["value"] == pytest.approx(done.metrics["top1"])  # what was saved is what was trained


def test_queries_that_nobody_asks_do_not_stop_two_processes(principal, classes, bert, tmp_path):
    """In the symmetric form the query weights have no gradient, for which a second process would wait."""
    how = (f"data.source={classes}", f"init_from=hf:{bert}", "data.length=16", "schedule.epochs=1", "data.limit=32")
    rpc = ("robustify.preset=cleaned", "robustify.form=symmetric", "robustify.layers=all", "training.batch_size=8")
    done = principal("train", "text/encoder", *how, *rpc, "--out", tmp_path / "run", processes=2, threads=1)
    assert done.returncode == 0, done.stderr
    assert "top-1" in done.stdout


def test_transformers_is_quiet(principal, classes, bert, tmp_path):
    how = (f"data.source={classes}", f"init_from=hf:{bert}", "data.length=16", "schedule.epochs=1", "data.limit=32")
    done = principal("train", "text/encoder", *how, "--out", tmp_path / "run", threads=1)
    assert done.returncode == 0
    assert not any(word in done.stdout + done.stderr for word in ("Loading weights", "LOAD REPORT", "Writing model"))


def test_only_what_is_read_of_a_language_model_learns(learn, classes, tmp_path):
    """The unused word head has no gradient, for which other processes would wait."""
    learn(tmp_path, "schedule.epochs=1", "schedule.warmup_epochs=0")
    task = TextTask(read_recipe("text/sst2", [f"init_from={tmp_path}", f"data.source={classes}"]))
    task.loss(task.model, next(task.batches(range(1), Place(0, 1))), 0).backward()
    idle = {name for name, p in task.model.named_parameters() if p.grad is None}
    assert idle == {f"language.head.{name}" for name, _ in task.language.head.named_parameters()}
    assert not any(p.requires_grad for p in task.language.head.parameters())


@pytest.mark.parametrize(
    ("train", "validation", "said"),
    [
        ([1] * 20, [1, 1], "all texts of the split train have one class"),
        ([0, 1] * 10, [0, 3], "the label of text 1 of split validation is 3; expected a class number from 0 to 1"),
        ([0, -1] * 10, [0, 1], "the label of text 1 of split train is -1; expected a class number from 0 to 0"),
    ],
)
def test_labels_are_those_of_the_training_texts(quick, learn, tmp_path, train, validation, said):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0")
    for split, labels in (("train", train), ("validation", validation)):
        rows = datasets.Dataset.from_dict({"sentence": ["a mill"] * len(labels), "label": labels})
        rows.to_parquet(tmp_path / f"{split}.parquet")
    how = (f"data.source={tmp_path}", f"init_from={tmp_path / 'language'}")
    with pytest.raises(InputError, match=said):
        quick(tmp_path / "run", *how, recipe="text/sst2", base=())


def test_data_with_a_single_class_or_without_a_row_are_refused(quick, learn, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0")
    how = (f"data.source={tmp_path}", f"init_from={tmp_path / 'language'}")
    for counts, said in (
        ((40, 5), "have one class; expected at least two"),
        ((40, 0), "the split validation of .* is empty"),
    ):
        for split, count in zip(("train", "validation"), counts, strict=True):
            features = datasets.Features({"sentence": datasets.Value("string"), "label": datasets.Value("int64")})
            rows = datasets.Dataset.from_dict({"sentence": ["a mill"] * count, "label": [0] * count}, features)
            rows.to_parquet(tmp_path / f"{split}.parquet")
        with pytest.raises(InputError, match=said):
            quick(tmp_path / "run", *how, recipe="text/sst2", base=())
