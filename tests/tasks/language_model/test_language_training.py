"""Training of language models."""

import datasets
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from principal_attention.adapt.named import ModelRef
from principal_attention.cli.app import app
from principal_attention.errors import InputError, LeakWarning
from principal_attention.language.decode import Sampling, generate
from principal_attention.language.folder import read_language_model
from principal_attention.language.vocabulary import decode, encode, size_of, unknown_of
from principal_attention.plumbing.files import read_jsonl
from principal_attention.plumbing.processes import Place
from principal_attention.tasks import read_recipe
from principal_attention.tasks.language_model.training import LanguageTask
from principal_attention.tasks.text_classes.training import TextTask
from small_texts import PARAGRAPH, QUICK_LANGUAGE, write_classes, write_letters, write_lines


def test_a_small_model_learns_a_paragraph_by_heart_and_recites_it(quick, tmp_path):
    """A model with 10,000 parameters reproduces its training text greedily, with a cache."""
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
    assert ModelRef.of(tmp_path).architecture == "principal_attention.LanguageModel"
    model, tokenizer = read_language_model(tmp_path)
    assert model.config.rpc["layers"] == {"0": {"iterations": 4, "lam": 4.0, "preset": "paper"}}
    (found, loss) = read_jsonl(tmp_path / "records.jsonl")
    assert (found["suite"], found["case"], found["metric"], found["protocol"]) == (
        "perplexity", "validation", "perplexity", "segments",
    )  # fmt: skip
    assert torch.tensor(loss["value"]).exp().item() == pytest.approx(found["value"], rel=1e-5)
    assert found["value"] < tokenizer.get_vocab_size()  # better than a guess
    assert "perplexity" in done.headline


def test_a_run_measured_on_its_own_texts_gives_its_own_numbers(learn, tmp_path):
    learn(tmp_path / "run", "schedule.epochs=1", "schedule.warmup_epochs=0")
    words = ["evaluate", str(tmp_path / "run"), "--protocol", "segments", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    trained, measured = (
        {e["metric"]: e["value"] for e in read_jsonl(tmp_path / name / "records.jsonl")} for name in ("run", "out")
    )
    assert measured["perplexity"] == pytest.approx(trained["perplexity"], rel=1e-6)


def test_segments_begin_elsewhere_each_epoch_and_follow_one_another(lines):
    task = LanguageTask(read_recipe("wikitext_small/symlm", [f"data.source={lines}", *QUICK_LANGUAGE]))
    steps, context = task.plan.epoch_steps, task.context
    begins = []
    for epoch in (0, 1):
        batches = list(task.batches(range(epoch * steps, (epoch + 1) * steps), Place(0, 1)))
        rows = {tuple(row) for inputs, _ in batches for row in inputs.tolist()}
        offset = next(i for i in range(context) if tuple(task.tokens[i : i + context].tolist()) in rows)
        whole = {tuple(part.tolist()) for part in task.tokens[offset:].split(context)}
        assert rows <= whole
        assert all(torch.equal(inputs[:, 1:], targets[:, :-1]) for inputs, targets in batches)
        begins.append(offset)
    assert begins[0] != begins[1]


@pytest.mark.parametrize("how", ["letters", "few", "frequent"])
def test_the_vocabulary_may_be_another(learn, lines, tmp_path, how):
    asked = {
        "letters": lambda: [f"data.tokenizer={write_letters(tmp_path)}"],
        "few": lambda: ["data.vocabulary=20"],
        "frequent": lambda: ["data.min_count=20"],
    }[how]()
    learn(tmp_path / "run", *asked, "schedule.epochs=1", "schedule.warmup_epochs=0")
    model, tokenizer = read_language_model(tmp_path / "run")
    text = "A mill stood by the sea"
    (found,) = encode(tokenizer, [text])
    assert model.config.vocab_size == size_of(tokenizer)
    if how == "letters":
        assert (len(found), decode(tokenizer, found)) == (len(text), text)
    else:
        assert size_of(tokenizer) <= 20
        assert unknown_of(tokenizer) in found


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


def test_the_balance_of_the_experts_is_part_of_the_loss(lines, learn, classes, tmp_path):
    """For both tasks: the load-balancing loss has a gradient at the router."""
    more = ("model.options.experts=4", "schedule.epochs=1", "schedule.warmup_epochs=0", "model.options.dropout=0")
    routers = {}
    for balance in (0.0, 5.0):
        how = [f"data.source={lines}", *QUICK_LANGUAGE, *more, f"model.options.balance={balance}"]
        learn(tmp_path / f"{balance}", *how[1:], recipe="wikitext_small/smoe")
        asked = [f"init_from={tmp_path / str(balance)}", f"data.source={classes}"]
        for task in (
            LanguageTask(read_recipe("wikitext_small/smoe", how)), TextTask(read_recipe("text/sst2", asked)),
        ):  # fmt: skip
            task.language.load_state_dict(read_language_model(tmp_path / "0.0")[0].state_dict())
            torch.manual_seed(0)
            task.loss(task.model.train(), next(task.batches(range(1), Place(0, 1))), 0).backward()
            routers[type(task), balance] = task.language.blocks[0].mlp.router.weight.grad
    for kind in (LanguageTask, TextTask):
        assert not torch.allclose(routers[kind, 0.0], routers[kind, 5.0])


def test_what_experts_counted_is_not_saved_with_the_model(learn, tmp_path):
    """Averaged weights include averaged counters, which are not reset."""
    how = ("schedule.epochs=1", "schedule.warmup_epochs=0", "training.ema=0.5")
    learn(tmp_path, *how, recipe="wikitext_small/smoe")
    model, _ = read_language_model(tmp_path)
    assert not any(each.load.any() or each.importance.any() for each in model.experts())


def test_a_run_that_is_trained_further_is_not_finished_until_it_is(learn, tmp_path):
    learn(tmp_path, "schedule.epochs=1", "schedule.warmup_epochs=0")
    how = ("evaluate", str(tmp_path), "--out", str(tmp_path / "measured"), "--limit", "5")
    assert CliRunner().invoke(app, how).exit_code == 0
    learn(tmp_path, "schedule.epochs=3", "schedule.warmup_epochs=0", resume=True, stop_after=18)
    done = CliRunner().invoke(app, how)
    assert (done.exit_code, "has not finished; use its newest checkpoint" in done.output) == (1, True)
    learn(tmp_path, "schedule.epochs=3", "schedule.warmup_epochs=0", resume=True)
    assert CliRunner().invoke(app, [*how[:3], str(tmp_path / "again")]).exit_code == 0


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


@pytest.mark.parametrize(
    ("split", "change"),
    [
        ("train", lambda lines: lines[::-1]),  # the same vocabulary
        ("train", lambda lines: [line.replace("mill", "hall") for line in lines]),  # the same numbers, other words
        ("validation", lambda lines: lines[1:]),
    ],
)
def test_other_texts_are_refused_on_resuming_a_language_model(quick, tmp_path, split, change):
    data, run = write_lines(tmp_path), tmp_path / "run"
    how = dict(recipe="wikitext_small/symlm", base=QUICK_LANGUAGE)
    quick(run, f"data.source={data}", stop_after=3, **how)
    file = str(data / f"{split}.parquet")
    lines = datasets.Dataset.from_parquet(file, cache_dir=str(tmp_path / "cache"))["text"]
    datasets.Dataset.from_dict({"text": change(list(lines))}).to_parquet(file)
    with pytest.raises(InputError, match="differ from those that the run in"):
        quick(run, f"data.source={data}", resume=True, **how)


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
        ("text/sst2", ("init_from=/nowhere", "data.text=null"), "the model is /nowhere; expected"),
        ("wikitext_small/symlm", ("model=null", "init_from=hf:/nowhere"), "there is no folder hf:/nowhere"),
        ("wikitext_small/symlm", ("model=null", "init_from=/x", "data.vocabulary=9"), "keeps its vocabulary"),
        ("wikitext_small/symlm", ("model=null", "init_from=/x", "data.tokenizer=/y"), "keeps its vocabulary"),
        ("wikitext_small/symlm", ("data.tokenizer=/nowhere", "data.vocabulary=9"), "names a file: drop one"),
        (
            "wikitext_small/symlm",
            ("optimizer.lr=1e38",),
            "optimizer.lr is '1e38'; expected less than",
        ),
        ("wikitext_small/symlm", ("training.smoothing=0.1",), "training.smoothing is 0.1; expected 0"),
        (
            "wikitext_small/symlm",
            ("schedule.warmup_epochs=5", "schedule.steps=3", "training.batch_size=2"),
            "the warm-up has",
        ),
        ("text/sst2", ("init_from=null",), "expected either model"),
        ("text/sst2", ("init_from=hf:/nowhere", "mark=true"), "mark and data.split are options for language models"),
    ],
)
def test_mistakes_are_answered_before_training(quick, lines, tmp_path, recipe, overrides, said):
    source = write_classes(tmp_path) if recipe.startswith("text") else lines
    with pytest.raises(InputError) as wrong:
        quick(tmp_path / "run", f"data.source={source}", *overrides, recipe=recipe, base=())
    assert said in str(wrong.value)
    assert not (tmp_path / "run" / "recipe.yaml").exists()
