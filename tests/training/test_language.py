"""Language models and classifiers of texts through the same engine and the same command as images."""

import json

import datasets
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from principal_attention._files import read_jsonl
from principal_attention._processes import Place
from principal_attention.cli.app import app
from principal_attention.errors import InputError, LeakWarning
from principal_attention.language.decode import Sampling, generate
from principal_attention.language.folder import kind_of, read_classifier, read_language_model
from principal_attention.language.load import load_classifier
from principal_attention.language.texts import open_splits
from principal_attention.language.vocabulary import decode, encode
from principal_attention.recipes import read_recipe
from principal_attention.training.texts import TextTask
from small_texts import PARAGRAPH, QUICK_LANGUAGE, write_classes, write_lines

SHORT = ("optimizer.lr=3e-3", "schedule.warmup_epochs=0", "training.batch_size=8")


@pytest.fixture(scope="session")
def lines(tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("classes"), test=True)


@pytest.fixture
def learn(quick, lines):
    """learn(folder, *overrides): a language model of a few hundred words."""

    def run(folder, *overrides, recipe="wikitext_small/rpc_symlm", **options):
        return quick(folder, f"data.source={lines}", *overrides, recipe=recipe, base=QUICK_LANGUAGE, **options)

    return run


def test_a_small_model_learns_a_paragraph_by_heart_and_recites_it(quick, tmp_path):
    """With 10,000 parameters, from the first words on, greedily, from its cache."""
    data = tmp_path / "data"
    data.mkdir()
    for split, copies in (("train", 40), ("validation", 3)):
        datasets.Dataset.from_dict({"text": [PARAGRAPH] * copies}).to_parquet(data / f"{split}.parquet")
    done = quick(
        tmp_path / "run", f"data.source={data}", "model.options.context=56", "model.options.embed_dim=32",
        "model.options.inner_dim=14", "model.options.num_heads=2", "model.options.depth=2", "model.options.dropout=0",
        "model.options.cutoffs=[20]", "training.batch_size=2", "schedule.epochs=16", "schedule.warmup_epochs=1",
        "optimizer.lr=1e-2", "optimizer.clip=1", "data.min_count=1", recipe="wikitext_small/rpc_symlm", base=(),
    )  # fmt: skip
    assert done.parameters <= 10_000
    model, tokenizer = read_language_model(tmp_path / "run")
    whole = encode(tokenizer, [PARAGRAPH])[0]
    recited = [*whole[:4], *generate(model, whole[:4], len(whole) - 4, Sampling(0.0))]
    assert decode(tokenizer, recited) == PARAGRAPH


def test_a_stopped_run_ends_where_an_unbroken_one_does(learn, tmp_path):
    same = dict(recipe="wikitext_small/smoe")
    options = ("training.ema=0.9", "training.log_every=5", "training.accumulate=2")
    learn(tmp_path / "whole", *options, **same)
    learn(tmp_path / "broken", *options, stop_after=5, **same)
    learn(tmp_path / "broken", *options, resume=True, **same)
    whole, broken = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(whole[name], broken[name]) for name in whole)
    logs = [read_jsonl(tmp_path / name / "metrics.jsonl") for name in ("whole", "broken")]
    for line in (*logs[0], *logs[1]):
        line.pop("examples_per_second", None)
        line.pop("waiting_share", None)
    assert logs[0] == logs[1]
    assert any("router_busiest_0" in line for line in logs[0])


def test_two_processes_do_what_one_does(learn, lines, principal, tmp_path):
    same = ("model.options.dropout=0",)
    learn(tmp_path / "one", *same)
    two = principal(
        "train", "wikitext_small/rpc_symlm", f"data.source={lines}", *QUICK_LANGUAGE, *same, "--out", tmp_path / "two",
        processes=2, threads=1,
    )  # fmt: skip
    assert two.returncode == 0, two.stderr
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name], rtol=0, atol=1e-4)  # sums in another order, over 3 epochs
    values = [read_jsonl(tmp_path / name / "records.jsonl")[0]["value"] for name in ("one", "two")]
    assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_the_run_is_a_model_a_vocabulary_and_its_numbers(learn, tmp_path):
    done = learn(tmp_path, "optimizer.lr=1e-2")
    assert kind_of(tmp_path) == "principal_attention.LanguageModel"
    model, tokenizer = read_language_model(tmp_path)
    assert model.config.rpc["layers"] == {"0": {"iterations": 4, "lam": 4.0, "preset": "paper"}}
    (found, loss) = read_jsonl(tmp_path / "records.jsonl")
    assert (found["suite"], found["case"], found["metric"], found["protocol"]) == (
        "perplexity", "validation", "perplexity", "segments",
    )  # fmt: skip
    assert torch.tensor(loss["value"]).exp().item() == pytest.approx(found["value"], rel=1e-5)
    assert found["value"] < tokenizer.get_vocab_size()  # better than a guess
    assert "perplexity" in done.headline


def test_steps_and_warm_up_can_be_counted_instead_of_epochs(learn, tmp_path):
    learn(tmp_path, "schedule.steps=11", "schedule.warmup_epochs=0", "schedule.warmup_steps=4")
    rates = [e["lr"] for e in read_jsonl(tmp_path / "metrics.jsonl") if "lr" in e]
    assert len(rates) == 11
    assert rates[0] == 0
    assert rates[:4] == sorted(rates[:4])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert read_jsonl(tmp_path / "metrics.jsonl")[-1]["step"] == 11


def test_the_load_of_the_experts_is_logged(learn, tmp_path):
    learn(tmp_path, "model.options.experts=4", "model.options.balance=0.01", "schedule.epochs=1",
          "schedule.warmup_epochs=0", recipe="wikitext_small/smoe")  # fmt: skip
    line = read_jsonl(tmp_path / "metrics.jsonl")[0]
    for layer in (0, 1):
        assert line[f"router_idlest_{layer}"] <= 1 <= line[f"router_busiest_{layer}"]
        assert 0 < line[f"router_entropy_{layer}"] <= 1


def test_the_global_mu_is_trained_with_a_warning_only(learn, tmp_path):
    with pytest.warns(LeakWarning):
        learn(tmp_path, "schedule.epochs=1", "schedule.warmup_epochs=0", recipe="wikitext_small/rpc_symlm_global_mu")
    with pytest.warns(LeakWarning):
        assert read_language_model(tmp_path)[0].config.mu == "global"


def test_a_run_can_be_trained_further_with_its_vocabulary(learn, tmp_path):
    learn(tmp_path / "first", "schedule.epochs=1", "schedule.warmup_epochs=0")
    learn(tmp_path / "second", "schedule.epochs=1", "schedule.warmup_epochs=0", "model=null",
          f"init_from={tmp_path / 'first'}", "robustify=null", recipe="wikitext_small/symlm", )  # fmt: skip
    first, second = (read_language_model(tmp_path / name)[1] for name in ("first", "second"))
    assert first.to_str() == second.to_str()


def test_a_language_model_becomes_a_classifier(learn, quick, classes, tmp_path):
    learn(tmp_path / "language", recipe="wikitext_small/smoe")
    for mark in (False, True):
        folder = tmp_path / f"classifier-{mark}"
        done = quick(
            folder, f"data.source={classes}", f"init_from={tmp_path / 'language'}", f"mark={mark}",
            "schedule.epochs=12", "optimizer.lr=1e-2", "training.batch_size=8", recipe="text/rpc_sst2", base=(),
        )  # fmt: skip
        assert done.metrics["top1"] > 0.8  # a guess is half; the word that decides is one of eight
        found = {(e["case"], e["metric"]): e["value"] for e in read_jsonl(folder / "records.jsonl")}
        assert set(found) == {(c, m) for c in ("train", "validation", "test") for m in ("top1", "loss")}
        model, _, reading = read_classifier(folder)
        assert reading.mark is mark
        assert len(model.language.config.rpc["layers"]) == model.language.config.depth


def test_the_papers_third_model_learns_five_classes(learn, quick, tmp_path):
    """The recipes for SST-5: learned positions, a mark after the last word, RPC-Attention while fine-tuning."""
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


def test_another_vocabulary_is_refused_on_resuming(learn, tmp_path):
    learn(tmp_path, stop_after=3)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    (first, a), (second, b) = list(content["model"]["vocab"].items())[5:7]
    content["model"]["vocab"] |= {first: b, second: a}
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match="is not the vocabulary of these texts"):
        learn(tmp_path, resume=True)


def test_other_texts_are_refused_on_resuming(quick, learn, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0")
    data = write_classes(tmp_path)
    words = (f"data.source={data}", f"init_from={tmp_path / 'language'}", "training.batch_size=8")
    quick(tmp_path / "run", *words, stop_after=3, recipe="text/sst2", base=())
    rows = datasets.Dataset.from_parquet(str(data / "train.parquet"), cache_dir=str(tmp_path / "cache")).to_dict()
    datasets.Dataset.from_dict(rows | {"label": [1 - x for x in rows["label"]]}).to_parquet(data / "train.parquet")
    with pytest.raises(InputError, match="are not those that the run in"):
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
    read = {}
    for by_length in (True, False):
        task = TextTask(read_recipe("text/sst2", [*given, f"data.by_length={by_length}"]))
        masks = [mask for _, mask, _ in task.batches(range(task.plan.epoch_steps), Place(0, 1))]
        assert sum(int(mask.sum()) for mask in masks) == sum(map(len, task.splits["train"][0]))  # every text once
        read[by_length] = sum(mask.numel() for mask in masks)
    assert read[True] < 0.8 * read[False]  # lengths are even from 3 to 9: about 6 tokens a text instead of 9


def test_padding_does_not_change_an_answer(learn, quick, classes, tmp_path):
    """Mixture of experts, a mark after the last word, RPC in all layers."""
    learn(tmp_path / "language", recipe="wikitext_small/smoe")
    quick(tmp_path / "run", f"data.source={classes}", f"init_from={tmp_path / 'language'}", "mark=true",
          "schedule.epochs=1", recipe="text/rpc_sst2", base=())  # fmt: skip
    classifier = load_classifier(str(tmp_path / "run"))
    texts = ["winter", "the miller sang until spring in the grey book", "a river froze"]
    with torch.no_grad():
        together = classifier.model.double()(*classifier.prepare(texts))
        alone = torch.cat([classifier.model(*classifier.prepare([text])) for text in texts])
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
    """A tiny BERT with a vocabulary of its own, as `hf:` finds it."""
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
    assert load_classifier(str(tmp_path / "run")).prepare(["the river froze in the grey winter"])[0].shape == (1, 5)


@pytest.mark.parametrize("rpc", [(), ("robustify.preset=cleaned", "robustify.iterations=3", "robustify.layers=all")])
def test_an_encoder_of_transformers_through_the_same_recipe(quick, classes, bert, tmp_path, rpc):
    done = quick(
        tmp_path / "run", f"data.source={classes}", f"init_from=hf:{bert}", "data.length=16", *SHORT, *rpc,
        "schedule.epochs=8", recipe="text/encoder", base=(),
    )  # fmt: skip
    assert done.metrics["top1"] > 0.8
    card = json.loads((tmp_path / "run/config.json").read_text())
    assert bool(rpc) is ("rpc" in json.dumps(card))
    measured = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--out", str(tmp_path / "measured")])
    assert measured.exit_code == 0, measured.output
    (found,) = read_jsonl(tmp_path / "measured/records.jsonl")
    assert found["value"] == pytest.approx(done.metrics["top1"])  # what was saved is what was trained


def test_data_with_a_single_class_or_without_a_row_are_refused(quick, learn, tmp_path):
    learn(tmp_path / "language", "schedule.epochs=1", "schedule.warmup_epochs=0")
    how = (f"data.source={tmp_path}", f"init_from={tmp_path / 'language'}")
    for counts, said in (((40, 5), "have one class; expected two"), ((40, 0), "the split validation of .* is empty")):
        for split, count in zip(("train", "validation"), counts, strict=True):
            features = datasets.Features({"sentence": datasets.Value("string"), "label": datasets.Value("int64")})
            rows = datasets.Dataset.from_dict({"sentence": ["a mill"] * count, "label": [0] * count}, features)
            rows.to_parquet(tmp_path / f"{split}.parquet")
        with pytest.raises(InputError, match=said):
            quick(tmp_path / "run", *how, recipe="text/sst2", base=())


def test_a_subset_is_a_folder_in_a_folder(quick, lines, tmp_path):
    for name, texts in (("first", ["one two three four"] * 30), ("second", ["five six seven eight"] * 30)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for split in ("train", "validation"):
            datasets.Dataset.from_dict({"text": texts}).to_parquet(tmp_path / "data" / name / f"{split}.parquet")
    found = open_splits(str(tmp_path / "data"), labelled=False, subset="second")
    assert {role: set(split.texts) for role, split in found.items()} == {
        "train": {"five six seven eight"}, "validation": {"five six seven eight"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("recipe", "overrides", "said"),
    [
        ("wikitext_small/symlm", ("model.name=symvit_tiny_patch16_224",), "there is no language model symvit_tiny"),
        ("wikitext_small/symlm", ("data.tokenizer=/nowhere",), "there is no tokenizer at /nowhere"),
        ("wikitext_small/symlm", ("data.text=label",), "data.text is 'label'"),
        ("wikitext_small/symlm", ("model.options.context=4000",), "expected at least two contexts of 4000"),
        ("wikitext_small/symlm", ("data.image_size=3",), "unknown key data.image_size"),
        ("wikitext_small/symlm", ("track=kernel_pca",), "unknown key track"),
        ("wikitext_small/symlm", ("task=nothing",), "task is 'nothing'; expected one of images, language, texts"),
        ("wikitext_small/symlm", ("schedule.steps=5", "schedule.warmup_steps=9"), "expected less than steps, 5"),
        ("text/sst2", ("init_from=/nowhere", "data.text=null"), "/nowhere holds no config.json"),
        ("wikitext_small/symlm", ("training.smoothing=0.1",), "training.smoothing is for classifiers"),
        (
            "wikitext_small/symlm",
            ("schedule.warmup_epochs=5", "schedule.steps=3", "training.batch_size=2"),
            "the warm-up has",
        ),
        ("text/sst2", ("init_from=null",), "expected either model"),
        ("text/sst2", ("init_from=hf:/nowhere", "mark=true"), "mark and data.split are for our own"),
    ],
)
def test_mistakes_are_answered_before_training(quick, lines, tmp_path, recipe, overrides, said):
    source = write_classes(tmp_path) if recipe.startswith("text") else lines
    with pytest.raises(InputError) as wrong:
        quick(tmp_path / "run", f"data.source={source}", *overrides, recipe=recipe, base=())
    assert said in str(wrong.value)
    assert not (tmp_path / "run" / "recipe.yaml").exists()
