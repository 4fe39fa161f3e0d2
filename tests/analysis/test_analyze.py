"""`principal analyze` on the command line."""

import json

import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, PreTrainedTokenizerFast
from typer.testing import CliRunner

from principal_attention.analysis import run as analysis_run
from principal_attention.analysis.run import AnalysisOptions, analyze
from principal_attention.cli.app import app
from principal_attention.errors import InputError
from principal_attention.language.config import LanguageConfig
from principal_attention.language.folder import write_language_model
from principal_attention.language.model import LanguageModel
from principal_attention.language.texts import open_split as open_texts
from principal_attention.language.vocabulary import count_words, size_of
from principal_attention.tasks.image_classes.analysis import ImageInputs
from principal_attention.tasks.image_classes.examples import Images
from principal_attention.tasks.image_classes.subject import ImageSubject
from principal_attention.vision.data import open_split
from principal_attention.vision.models.classifier import Classifier
from principal_attention.vision.models.load import build_classifier

DIGITS = dict(img_size=8, patch_size=1, in_chans=1, embed_dim=32, depth=2, num_heads=4)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of untrained models for 8×8 digits, with 65 tokens and heads of width 8, saved as finished runs."""
    torch.manual_seed(0)
    folders = {}
    for kind in ("kpca_vit", "symvit"):
        folders[kind] = tmp_path_factory.mktemp(kind)
        made: Classifier = build_classifier(
            name=f"{kind}_tiny_patch16_224", options=DIGITS, num_classes=lambda: 10, image_size=8
        )
        made.save(folders[kind])
    return folders


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Tiny BERT and GPT-2 with heads of width 4, a tokenizer, and a table of texts."""
    import pandas
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("words")
    vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, **{f"w{i}": i + 3 for i in range(40)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[SEP]"
    )
    torch.manual_seed(0)
    small = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=16)
    BertModel(BertConfig(**small)).save_pretrained(folder / "bert")
    GPT2Model(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=4)).save_pretrained(folder / "gpt2")
    BertModel(BertConfig(**small)).save_pretrained(folder / "bare")
    for name in ("bert", "gpt2"):
        fast.save_pretrained(folder / name)
    random = torch.Generator().manual_seed(0)
    texts = [
        " ".join(f"w{i}" for i in torch.randint(0, 40, (length,), generator=random)) for length in (2, 6, 9, 12, 8, 20)
    ]
    pandas.DataFrame({"sentence": texts, "label": range(6)}).to_parquet(folder / "train.parquet")
    (folder / "holes").mkdir()
    pandas.DataFrame({"sentence": [texts[1], None]}).to_parquet(folder / "holes" / "train.parquet")
    return folder


def principal(*arguments, code=0):
    found = CliRunner().invoke(app, ["analyze", *map(str, arguments)], catch_exceptions=False)
    assert found.exit_code == code, found.output
    return " ".join(found.output.split())


def read(folder):
    return [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_network_with_the_theorems_own_values_is_recognised(models, tmp_path):
    said = principal(models["kpca_vit"], "--data", "digits", "--images", 12, "--out", tmp_path)
    for claim in ("span the leading principal axes", "values are those of Theorem 1", "γ is constant",
                  "J_proj as printed is a projection error"):  # fmt: skip
        assert f"{claim}: holds" in said
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 6
    assert "digits/validation" in page
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "overlap.png", "heads.png", "rank.png", "spectrum.png", "gamma.png", "gamma-layers.png",
    }  # fmt: skip


def test_records_say_what_pins_a_number_down(models, tmp_path):
    said = principal(models["symvit"], "--data", "digits", "--images", 4, "--out", tmp_path)
    assert "they span the leading principal axes: not asked. 4 examples are too few" in said
    found = read(tmp_path)
    heads = [r for r in found if "head" in r]
    for metric in ("lambda_max", "rayleigh_residual", "overlap", "infeasible_share", "phi_norm", "h_norm",
                   "violation_share"):  # fmt: skip
        own = [r for r in heads if (r["metric"], r["null"]) == (metric, "none")]
        assert {(r["layer"], r["head"]) for r in own} == {(layer, head) for layer in range(2) for head in range(4)}
        assert all(r["low"] <= r["value"] <= r["high"] and r["n"] == 4 and r["suite"] == "kernel_pca" for r in own)
    nulls = {r["null"] for r in heads if r["metric"] == "overlap"}
    assert nulls == {"none", "random", "shuffled", "untrained"}
    text = (tmp_path / "records.jsonl").read_text(encoding="utf-8")
    strict = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert len(strict) == len(found)  # no NaN or Infinity, which are not JSON
    null = next(r for r in heads if (r["metric"], r["null"], r["layer"], r["head"]) == ("overlap", "random", 1, 2))
    own = next(r for r in heads if (r["metric"], r["null"], r["layer"], r["head"]) == ("overlap", "none", 1, 2))
    assert null["difference"] == pytest.approx(own["value"] - null["value"])


def inputs(folder, count):
    subject = ImageSubject(str(folder))
    return ImageInputs(subject, Images(open_split("digits"), subject.view, None), "digits/test", count)


def test_an_analysis_that_was_killed_goes_on_and_finds_the_same(models, tmp_path, monkeypatch):
    whole = analyze(inputs(models["symvit"], 5), tmp_path / "whole", AnalysisOptions(batch_size=2))
    done, original = [], analysis_run._batch

    def killed(*args):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return original(*args)

    monkeypatch.setattr(analysis_run, "_batch", killed)
    with pytest.raises(KeyboardInterrupt):
        analyze(inputs(models["symvit"], 5), tmp_path / "killed", AnalysisOptions(batch_size=2))
    (tmp_path / "killed" / "parts" / "00001.safetensors").write_bytes(b"half a file")
    monkeypatch.setattr(analysis_run, "_batch", original)
    assert analyze(inputs(models["symvit"], 5), tmp_path / "killed", AnalysisOptions(batch_size=2)) == whole
    # more images later: only the batch that was not whole is measured again
    more = analyze(inputs(models["symvit"], 6), tmp_path / "killed", AnalysisOptions(batch_size=2))
    assert {r["n"] for r in more} == {6}


def test_an_untrained_network_is_no_more_kernel_pca_than_itself(models, tmp_path):
    """Each head is one random initialisation: about one in forty clears the null model by chance."""
    from principal_attention.analysis.verdicts import heads_that_clear

    records = analyze(inputs(models["symvit"], 12), tmp_path)
    cleared = [
        each["difference_low"] > 0 or each["difference_high"] < 0
        for each in records
        if each["null"] == "untrained"
        and each["metric"] in ("overlap", "rayleigh_residual", "linear_cka", "kernel_cka")
    ]
    assert len(cleared) == 32
    assert sum(cleared) <= 6  # 5% of 32 is 1.6; heads of one network are not independent
    assert sum(heads_that_clear(records, "overlap")) == 0


def test_every_layer_must_be_seen_once(models, tmp_path):
    given = inputs(models["symvit"], 2)
    given.show = lambda network, batch: [network(batch.given["pixels"]) for _ in range(2)]
    with pytest.raises(InputError, match="attention layer 0 of 2 was seen 2 times"):
        analyze(given, tmp_path)
    assert not (tmp_path / "analysis.json").exists()


def test_the_size_of_batches_changes_nothing(models, tmp_path):
    one, three = (
        analyze(inputs(models["symvit"], 5), tmp_path / str(size), AnalysisOptions(batch_size=size)) for size in (1, 3)
    )
    for a, b in zip(one, three, strict=True):
        assert (a["case"], a["metric"], a["null"]) == (b["case"], b["metric"], b["null"])
        # the network's float32 differs a little with its batch
        assert a["value"] == pytest.approx(b["value"], rel=2e-3, abs=1e-6), a


def test_another_model_has_no_place_in_the_folder(models, tmp_path):
    principal(models["symvit"], "--data", "digits", "--images", 1, "--out", tmp_path)
    said = principal(models["kpca_vit"], "--data", "digits", "--images", 1, "--out", tmp_path, code=1)
    assert "holds an analysis with model" in said
    said = principal(models["symvit"], "--data", "digits", "--seed", 1, "--out", tmp_path, code=1)
    assert "seed 0, not 1" in said


def test_sentences_are_taken_without_their_padding(words, tmp_path):
    """Texts have 4 to 22 tokens; heads of width 4 need at least 6."""
    principal(f"hf:{words / 'bert'}", "--data", words / "train.parquet", "--texts", 9, "--out", tmp_path)
    assert {r["n"] for r in read(tmp_path)} == {5}
    alone = tmp_path / "alone"
    principal(f"hf:{words / 'bert'}", "--data", words / "train.parquet", "--batch-size", 1, "--out", alone)
    for a, b in zip(read(tmp_path), read(alone), strict=True):
        assert a["value"] == pytest.approx(b["value"], rel=2e-3, abs=1e-6), a


def test_texts_are_joined_to_pieces(words, tmp_path):
    """57 words make four pieces of 14 words and two special tokens."""
    given = (f"hf:{words / 'bert'}", "--data", words / "train.parquet", "--out", tmp_path)
    principal(*given, "--pack", 16)
    assert {r["n"] for r in read(tmp_path) if r["null"] != "untrained"} == {4}
    assert "holds an analysis with contents" in principal(*given, "--pack", 20, code=1)


def test_causal_heads_are_refused_and_analysed_row_by_row_on_request(words, tmp_path):
    common = (f"hf:{words / 'gpt2'}", "--data", words / "train.parquet", "--pack", 20, "--out", tmp_path)
    said = principal(*common, code=1)
    assert "layer 0 is causal" in said
    assert "--prefixes" in said
    principal(*common, "--prefixes", "8,16")  # with the given prefixes
    found = read(tmp_path)
    assert {r["prefix"] for r in found} == {8, 16}
    assert not any(r["metric"] == "explained_share" for r in found)


def test_a_language_model_of_ours_is_analysed_like_any_other(words, tmp_path):
    tokenizer = count_words(open_texts(str(words / "train.parquet"), labelled=False).texts)
    config = LanguageConfig(vocab_size=size_of(tokenizer), context=32, depth=2, embed_dim=16, num_heads=2, inner_dim=24)
    write_language_model(tmp_path / "run", LanguageModel(config), tokenizer)
    common = (tmp_path / "run", "--data", words / "train.parquet", "--pack", 20, "--out", tmp_path / "out")
    assert "layer 0 is causal" in principal(*common, code=1)
    principal(*common, "--prefixes", "16")
    found = read(tmp_path / "out")
    heads = {(r["layer"], r["head"]) for r in found if "head" in r}
    assert heads == {(layer, head) for layer in (0, 1) for head in (0, 1)}
    assert {"none", "random", "shuffled", "untrained"} == {r["null"] for r in found}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere", "--data", "digits"), "expected timm:NAME@weights, hf:FOLDER or the folder of a finished run"),
        (("{symvit}", "--data", "/nowhere"), "there is nothing at /nowhere"),
        (("{symvit}",), "--data is missing"),
        (("{symvit}", "--data", "digits", "--pack", 64), "--pack is an option of language models and text classifiers"),
        (("hf:{bert}", "--data", "{texts}", "--column", "label"), "expected texts"),
        (("hf:{bert}", "--data", "{texts}", "--pack", 400), "fewer than the 400 tokens of one piece"),
        (("hf:{bert}", "--data", "{texts}", "--prefixes", "8"), "layer 0 is not causal"),
        (("hf:{gpt2}", "--data", "{texts}", "--prefixes", "40"), "no sequence has the 40 tokens"),
        (("hf:{bare}", "--data", "{texts}"), "holds no tokenizer"),
        (("hf:{bert}", "--data", "{holes}"), "is None; expected a string"),
        (("{symvit}", "--data", "digits", "--prefixes", "a"), "expected numbers of tokens"),
        (("{symvit}", "--data", "digits", "--prefixes", "1"), "at least 2 tokens"),
        (("hf:{bert}", "--data", "/nowhere"), "there is nothing at /nowhere"),
        (("hf:{bert}",), "--data is missing"),
        (("hf:{bert}", "--data", "{texts}", "--pack", 5), "expected from 6 to 512"),
        (("hf:{bert}", "--data", "{texts}", "--split", "dev"), "has no split 'dev'"),
        (("hf:/nowhere", "--data", "{texts}"), "hf:/nowhere cannot be opened"),
    ],
)
def test_bad_input_gets_one_sentence(models, words, tmp_path, arguments, sentence):
    names = {name: words / name for name in ("bert", "gpt2", "bare")} | models
    names |= {"texts": words / "train.parquet", "holes": words / "holes" / "train.parquet"}
    assert sentence in principal(*(str(each).format(**names) for each in arguments), "--out", tmp_path, code=1)


def test_damaged_files_are_named_or_measured_again(models, tmp_path):
    given = (models["symvit"], "--data", "digits", "--images", 1, "--out", tmp_path)
    principal(*given)
    (tmp_path / "analysis.json").write_text("[]")
    assert "analysis.json is damaged" in principal(*given, code=1)


def test_a_name_in_brackets_is_shown_as_it_is(models, tmp_path):
    said = principal(models["symvit"], "--data", "digits", "--images", 1, "--out", tmp_path / "run[red]" / "a[")
    assert "run[red]/a[/index.html" in said


def test_a_sequence_no_longer_than_its_heads_are_wide_is_refused(tmp_path):
    made = build_classifier(name="symvit_tiny_patch16_224", options=DIGITS | {"num_heads": 1, "patch_size": 2},
                            num_classes=lambda: 10, image_size=8)  # fmt: skip
    (tmp_path / "model").mkdir()
    made.save(tmp_path / "model")
    said = principal(tmp_path / "model", "--data", "digits", "--out", tmp_path / "out", code=1)
    assert "17 tokens and the heads' values 32 columns" in said
