"""`principal evaluate` and `principal generate` with text models, on the command line."""

import json
import math
import os

import datasets
import numpy as np
import pytest
import torch

from evaluated import records
from principal_attention.language.folder import (
    read_classifier,
    read_language_model,
    write_classifier,
    write_language_model,
)  # fmt: skip
from principal_attention.language.load import load_classifier
from principal_attention.language.texts import open_split
from principal_attention.language.vocabulary import encode_lines, read_tokenizer
from principal_attention.language.word_swap import swap_lines
from principal_attention.plumbing.files import read_jsonl
from small_texts import write_letters
from text_models import CONTEXT, language_model, principal


def losses_by_definition(folder, inputs, targets):
    """Reference for the paper's protocol, one token at a time."""
    model, _ = read_language_model(folder)
    found = []
    with torch.no_grad():
        for i in range(len(targets)):
            window = inputs[max(0, i + 1 - CONTEXT) : i + 1]
            found.append(-model(window[None])[0, -1, targets[i]].item())
    return np.array(found)


def test_perplexity_is_the_papers_sliding_window(language, lines, tmp_path):
    assert principal("evaluate", language, "--data", lines, "--split", "test", "--out", tmp_path).exit_code == 0
    tokens = encode_lines(read_tokenizer(language), open_split(str(lines), "test", labelled=False).texts)
    expected = losses_by_definition(language, tokens[:-1], tokens[1:])
    (found,) = records(tmp_path, metric="perplexity")
    assert found["value"] == pytest.approx(math.exp(expected.mean()), rel=1e-6)
    assert (found["suite"], found["case"], found["protocol"], found["stride"]) == ("perplexity", "clean", "sliding", 1)
    assert (found["n"], found["data"]) == (len(tokens) - 1, f"{lines.name}/test")
    (words,) = records(tmp_path, metric="word_perplexity")
    assert words["value"] == pytest.approx(found["value"])  # a token is a word here


def test_the_share_of_unknown_words_is_told(language, tmp_path):
    datasets.Dataset.from_dict({"text": ["the mill", "a Xylophone froze"]}).to_parquet(tmp_path / "test.parquet")
    done = principal("evaluate", language, "--data", tmp_path / "test.parquet", "--out", tmp_path / "out")
    (found,) = records(tmp_path / "out", metric="unknown_share")
    assert found["value"] == pytest.approx(1 / 6)  # of mill, the end, a, Xylophone, froze, the end
    assert "16.7%" in done.output


@pytest.mark.parametrize("swap", ["both", "inputs"])
def test_words_are_swapped_in_inputs_and_in_targets_or_not(language, lines, tmp_path, swap):
    done = principal(
        "evaluate", language, "--data", lines, "--suite", "word_swap", "--swap", swap, "--seed", 3, "--out", tmp_path
    )
    assert done.exit_code == 0, done.output
    texts, tokenizer = open_split(str(lines), labelled=False).texts, read_tokenizer(language)
    swapped = encode_lines(tokenizer, swap_lines(texts, seed=3))
    targets = swapped if swap == "both" else encode_lines(tokenizer, texts)
    expected = losses_by_definition(language, swapped[:-1], targets[1:])
    (found,) = records(tmp_path, metric="perplexity")
    assert found["value"] == pytest.approx(math.exp(expected.mean()), rel=1e-6)
    assert (found["suite"], found["swap"], found["seed"]) == ("word_swap", swap, 3)
    assert "1.5% swapped in inputs" + " and targets" * (swap == "both") in " ".join(done.output.split())


def test_other_windows_bear_another_name(language, lines, tmp_path):
    for more in (("--stride", 4), ("--protocol", "segments"), ("--limit", 30), ("--limit", 30, "--stride", 4)):
        done = principal("evaluate", language, "--data", lines, *more, "--out", tmp_path)
        assert done.exit_code == 0, done.output
    names = {each["protocol"]: each["n"] for each in records(tmp_path, metric="perplexity")}
    assert names.keys() == {
        "sliding, stride 4", "segments", "sliding, first 30 tokens", "sliding, stride 4, first 30 tokens",
    }  # fmt: skip
    assert names["sliding, first 30 tokens"] == 30


def test_log_probabilities_on_request(language, lines, tmp_path):
    principal("evaluate", language, "--data", lines, "--limit", 20, "--log-probs", "--out", tmp_path)
    told, *tokens = read_jsonl(tmp_path / "log-probs-0.jsonl")
    assert told["protocol"] == "sliding, first 20 tokens"
    assert told.keys() > {"suite", "case", "n", "data", "data_id", "context", "stride"}  # identifies the case
    assert [each["position"] for each in tokens] == list(range(1, 21))
    (found,) = records(tmp_path, metric="loss")
    assert -np.mean([each["log_prob"] for each in tokens]) == pytest.approx(found["value"])
    words = [w for line in open_split(str(lines), labelled=False).texts for w in (*line.split(), "<eos>")][1:21]
    assert [each["token"] for each in tokens] == words


def test_a_stopped_evaluation_goes_on(language, lines, tmp_path):
    """Existing outcomes are kept, a partly written line is measured again, and another limit adds outcomes."""
    common = ("evaluate", language, "--data", lines, "--out", tmp_path)
    principal(*common)
    written = (tmp_path / "outcomes-0.jsonl").read_bytes()
    value = records(tmp_path, metric="perplexity")[0]["value"]
    principal(*common)
    assert (tmp_path / "outcomes-0.jsonl").read_bytes() == written
    (tmp_path / "outcomes-0.jsonl").write_bytes(written[: len(written) // 2])
    principal(*common)
    assert records(tmp_path, metric="perplexity")[0]["value"] == value
    principal(*common, "--limit", 30)
    assert {r["n"] for r in records(tmp_path, metric="perplexity")} == {30, len(json.loads(written)["index"])}


def table(folder, texts, labels, names=None):
    features = {
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=names) if names else datasets.Value("int64"),
    }
    folder.mkdir()
    rows = datasets.Dataset.from_dict({"text": texts, "label": labels}, datasets.Features(features))
    rows.to_parquet(folder / "validation.parquet")
    return folder


def test_classes_are_matched_by_name(classifier, classes, tmp_path):
    """Data with other numbers or spellings of the same classes give the same results."""
    split = open_split(str(classes), labelled=True)
    model, tokenizer, reading = read_classifier(classifier)
    named = reading.model_copy(update={"labels": ["WINTER", "SPRING"]})
    write_classifier(tmp_path / "model", model, tokenizer, named)
    same = table(tmp_path / "same", split.texts, split.labels, ["winter", "spring"])
    turned = table(tmp_path / "turned", split.texts, [1 - label for label in split.labels], ["spring", "winter"])
    found = []
    for data in (same, turned):
        done = principal("evaluate", tmp_path / "model", "--data", data, "--out", tmp_path / f"out-{data.name}")
        assert done.exit_code == 0, done.output
        found.append(records(tmp_path / f"out-{data.name}", metric="top1")[0]["value"])
    assert found[0] == found[1]
    other = table(tmp_path / "other", split.texts, split.labels, ["autumn", "spring"])
    done = principal("evaluate", tmp_path / "model", "--data", other, "--out", tmp_path / "out")
    assert "has a class 'autumn'; expected some of WINTER, SPRING" in done.output


def test_models_that_number_classes_otherwise_are_compared_on_the_same_texts(classifier, classes, tmp_path):
    split = open_split(str(classes), labelled=True)
    data = table(tmp_path / "data", split.texts, split.labels, ["winter", "spring"])
    model, tokenizer, reading = read_classifier(classifier)
    for labels in (["winter", "spring"], ["spring", "winter"]):
        told = reading.model_copy(update={"labels": labels})
        write_classifier(tmp_path / labels[0], model, tokenizer, told)
        with torch.no_grad():
            for weight in (model.classify.weight, model.classify.bias):
                weight.copy_(weight.flip(0))  # the same answers by name
    common = ("--data", data, "--limit", 11)
    principal("evaluate", tmp_path / "winter", *common, "--out", tmp_path / "one")
    done = principal("evaluate", tmp_path / "spring", *common, "--out", tmp_path / "two", "--against", tmp_path / "one")
    assert done.exit_code == 0, done.output
    assert [list(outcomes(tmp_path / name)) for name in ("one", "two")] == [list(outcomes(tmp_path / "one"))] * 2


def test_other_labels_or_another_way_of_reading_are_measured_again(classifier, classes, tmp_path):
    split = open_split(str(classes), labelled=True)
    data = table(tmp_path / "data", split.texts, split.labels)
    common = ("evaluate", classifier, "--data", data, "--out", tmp_path / "out")
    principal(*common)
    before = records(tmp_path / "out", metric="top1")[0]["value"]
    turned = table(tmp_path / "turned", split.texts, [1 - label for label in split.labels])
    os.replace(turned / "validation.parquet", data / "validation.parquet")
    principal(*common)
    assert [r["value"] for r in records(tmp_path / "out", metric="top1")] == [before, pytest.approx(1 - before)]
    model, tokenizer, reading = read_classifier(classifier)
    write_classifier(tmp_path / "model", model, tokenizer, reading)
    principal("evaluate", tmp_path / "model", "--data", data, "--out", tmp_path / "second")
    write_classifier(tmp_path / "model", model, tokenizer, reading.model_copy(update={"length": 1}))
    done = principal("evaluate", tmp_path / "model", "--data", data, "--out", tmp_path / "second")
    assert "holds an evaluation with other weights" in done.output


def test_inputs_alone_are_swapped_only_where_words_are_tokens(lines, tmp_path):
    """Refused also if the lengths of two lines change but not their sum."""
    tokenizer = read_tokenizer(write_letters(tmp_path))
    write_language_model(tmp_path / "model", language_model(tokenizer), tokenizer)
    datasets.Dataset.from_dict({"text": ["ox", "mill"]}).to_parquet(tmp_path / "validation.parquet")
    common = ("evaluate", tmp_path / "model", "--data", tmp_path / "validation.parquet", "--suite", "word_swap")
    done = principal(*common, "--swap", "inputs", "--out", tmp_path / "out")
    assert "it is for word vocabularies" in done.output
    done = principal(*common, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    (a_word,) = records(tmp_path / "out", metric="word_perplexity")
    (a_token,) = records(tmp_path / "out", metric="perplexity")
    assert math.log(a_word["value"]) * 3 == pytest.approx(math.log(a_token["value"]) * 7)  # 3 words, 7 tokens
    assert " word " in done.output


def test_classes_clean_and_swapped(classifier, classes, tmp_path):
    done = principal(
        "evaluate", classifier, "--data", classes, "--suite", "clean,word_swap", "--batch-size", 7, "--out", tmp_path
    )
    assert done.exit_code == 0, done.output
    model, split = load_classifier(str(classifier)), open_split(str(classes), labelled=True)
    for suite, texts in (("clean", split.texts), ("word_swap", swap_lines(split.texts, seed=0))):
        with torch.no_grad():
            answers = [int(model.logits([text]).argmax()) for text in texts]
        (found,) = records(tmp_path, suite=suite, metric="top1")
        assert found["value"] == pytest.approx(np.mean(np.equal(answers, split.labels)))
        assert found["n"] == 40
    assert "word_swap" in done.output


def test_which_words_are_swapped_does_not_depend_on_what_a_text_is_measured_with(classifier, classes, tmp_path):
    how = ("evaluate", classifier, "--data", classes, "--suite", "word_swap", "--swap-rate", 0.5)
    sure = []
    for number, more in enumerate((("--batch-size", 1), ("--batch-size", 40), ("--limit", 9))):
        assert principal(*how, *more, "--out", tmp_path / str(number)).exit_code == 0
        found = [dict(zip(e["index"], e["confidence"], strict=True)) for e in lines_of(tmp_path / str(number))]
        sure.append({index: x for each in found for index, x in each.items()})
    assert len(set(sure[0].values())) > 20  # confidences differ between texts
    for other in sure[1:]:
        assert other == pytest.approx({i: sure[0][i] for i in other}, rel=1e-5)  # rounding depends on the batches


def lines_of(folder):
    return read_jsonl(folder / "outcomes-0.jsonl")


def outcomes(folder):
    """Outcome of every text."""
    for line in lines_of(folder):
        for index, label, predicted in zip(line["index"], line["label"], line["predicted"], strict=True):
            yield {"index": index, "right": label == predicted}


def test_two_classifiers_are_compared_text_by_text(classifier, classes, tmp_path):
    model, tokenizer, reading = read_classifier(classifier)
    torch.nn.init.normal_(model.classify.weight)
    write_classifier(tmp_path / "other", model, tokenizer, reading)
    one, other = tmp_path / "a", tmp_path / "b"
    principal("evaluate", classifier, "--data", classes, "--out", one)
    done = principal("evaluate", tmp_path / "other", "--data", classes, "--out", other, "--against", one)
    assert done.exit_code == 0, done.output
    right = [{r["index"]: r["right"] for r in outcomes(folder)} for folder in (other, one)]
    only = [sum(a[i] and not b[i] for i in a) for a, b in (right, right[::-1])]
    row = [line for line in done.output.splitlines() if line.strip().startswith("clean")][-1]
    assert only[0] + only[1] > 0
    assert f" {only[0]} " in row
    assert f" {only[1]} " in row


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{language}",), "--data is missing"),
        (("{lines}/nowhere", "--suite", "perplexity"), "expected timm:NAME@weights, hf:FOLDER or the folder of a"),
        (
            ("{half}", "--stride", "3"),
            "has not finished; use its newest checkpoint with --checkpoint last",
        ),
        (
            ("{language}", "--data", "{lines}", "--swap-rate", "0.5"),
            "--swap-rate is an option of --suite word_swap, and",
        ),
        (("{language}", "--data", "{lines}", "--suite", "attacks"), "no suite of language models 'attacks'"),
        (
            ("{language}", "--data", "{lines}", "--eps", "1/255"),
            "image classifiers; {language} is one of language models",
        ),
        (
            ("{language}", "--data", "{lines}", "--protocol", "pixel"),
            "--protocol is 'pixel'; expected 'sliding' or 'segments'",
        ),
        (
            ("{language}", "--data", "{lines}", "--stride", "11"),
            "expected from 1 to the context of 10",
        ),
        (
            ("{language}", "--data", "{lines}", "--suite", "word_swap", "--swap-rate", "2"),
            "--swap-rate is '2'; expected less than or equal to 1",
        ),
        (("{language}", "--data", "{lines}", "--split", "nothing"), "has no split 'nothing'"),
        (("{language}", "--data", "{lines}/nowhere"), "there is nothing at"),
        (
            ("{classifier}", "--data", "{classes}", "--stride", "2"),
            "models; {classifier} is one of text classifiers",
        ),
        (("{classifier}", "--data", "{classes}", "--log-probs"), "--log-probs is an option of language models"),
        (("{classifier}", "--data", "{classes}", "--swap", "inputs"), "--swap is an option of language models"),
        (
            ("{classifier}", "--data", "{classes}", "--severities", "3"),
            "--severities is an option of image",
        ),
        (
            ("{classifier}", "--data", "{lines}"),
            "no column holds the label: expected whole numbers, and the columns are text (string)",
        ),
        (("{classifier}", "--data", "{classes}", "--column", "nothing"), "--column is 'nothing'; the columns are"),
        (("{language}", "--data", "{lines}", "--label", "x"), "--label is an option of text classifiers"),
        (
            ("{language}", "--data", "{lines}", "--against", "{before}"),
            "which --suite perplexity does not allow",
        ),
    ],
)
def test_mistakes_are_one_sentence(language, classifier, lines, classes, tmp_path, words, said):
    before = tmp_path / "before"
    if "{before}" in words:
        principal("evaluate", language, "--data", lines, "--limit", 5, "--out", before)
    half = tmp_path / "half"
    half.mkdir()
    (half / "recipe.yaml").touch()
    names = dict(language=language, classifier=classifier, lines=lines, classes=classes, before=before, half=half)
    filled = [w.format(**names) for w in words]
    done = principal("evaluate", *filled, "--out", tmp_path)
    assert done.exit_code == 1
    assert said.format(**names) in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_options_for_texts_are_refused_for_images(tmp_path):
    for option in (("--stride", 2), ("--log-probs",), ("--swap-rate", 1)):
        done = principal("evaluate", "timm:deit_tiny_patch16_224", "--data", "digits", *option, "--out", tmp_path)
        assert (done.exit_code, f"{option[0]} is an option of language models" in done.output) == (1, True)


def test_an_encoder_without_a_classifier_has_no_accuracy(classes, tmp_path):
    from transformers import BertConfig, BertModel

    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=10)
    BertModel(BertConfig(**sizes)).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcde"]))
    done = principal("evaluate", f"hf:{tmp_path / 'bert'}", "--data", classes, "--out", tmp_path / "out")
    assert (done.exit_code, "holds no classifier" in done.output) == (1, True)
