"""`principal evaluate` and `principal generate` on models of text, as typed."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from evaluated import records
from principal_attention._files import read_jsonl
from principal_attention.cli.app import app
from principal_attention.language.classifier import LastPosition
from principal_attention.language.config import LanguageConfig
from principal_attention.language.folder import (
    Reading,
    read_classifier,
    read_language_model,
    write_classifier,
    write_language_model,
)  # fmt: skip
from principal_attention.language.load import load_classifier
from principal_attention.language.model import LanguageModel
from principal_attention.language.swap import swap_lines
from principal_attention.language.texts import open_split
from principal_attention.language.vocabulary import count_words, encode_lines, read_tokenizer, size_of
from small_texts import write_classes, write_lines

CONTEXT = 10


def principal(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "140"})


@pytest.fixture(scope="session")
def lines(tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("classes"))


def language_model(tokenizer):
    torch.manual_seed(0)
    rpc = {"form": "query", "layers": {"0": {"iterations": 3, "lam": 0.5, "preset": "paper"}}}
    sizes = dict(context=CONTEXT, depth=2, embed_dim=16, num_heads=2, inner_dim=24, cutoffs=[10])
    model = LanguageModel(LanguageConfig(vocab_size=size_of(tokenizer), attention="symmetric", rpc=rpc, **sizes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.fixture(scope="session")
def language(lines, tmp_path_factory):
    """The folder of a language model with an RPC layer."""
    tokenizer = count_words(open_split(str(lines), "train", labelled=False).texts)
    folder = tmp_path_factory.mktemp("models") / "language"
    write_language_model(folder, language_model(tokenizer), tokenizer)
    return folder


@pytest.fixture(scope="session")
def classifier(classes, tmp_path_factory):
    tokenizer = count_words(open_split(str(classes), "train", labelled=True).texts)
    model = LastPosition(language_model(tokenizer), 2)
    torch.nn.init.normal_(model.classify.weight)
    folder = tmp_path_factory.mktemp("models") / "classifier"
    write_classifier(folder, model, tokenizer, Reading(classes=2, length=CONTEXT))
    return folder


def losses_by_definition(folder, inputs, targets):
    """The paper's window, one token at a time."""
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
    assert words["value"] == pytest.approx(math.exp(expected.sum() / len(tokens)), rel=1e-6)


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
    assert [each["position"] for each in tokens] == list(range(1, 21))
    (found,) = records(tmp_path, metric="loss")
    assert -np.mean([each["log_prob"] for each in tokens]) == pytest.approx(found["value"])
    words = [w for line in open_split(str(lines), labelled=False).texts for w in (*line.split(), "<eos>")][1:21]
    assert [each["token"] for each in tokens] == words


def test_a_stopped_evaluation_goes_on(language, lines, tmp_path):
    """Lines of the first run stay as they are, also where another limit needs the same tokens."""
    common = ("evaluate", language, "--data", lines, "--out", tmp_path)
    principal(*common)
    written = (tmp_path / "outcomes-0.jsonl").read_bytes()
    value = records(tmp_path, metric="perplexity")[0]["value"]
    principal(*common)
    assert (tmp_path / "outcomes-0.jsonl").read_bytes() == written
    (tmp_path / "outcomes-0.jsonl").write_bytes(written[: len(written) // 2])
    principal(*common)
    assert records(tmp_path, metric="perplexity")[0]["value"] == value


def test_classes_clean_and_swapped(classifier, classes, tmp_path):
    done = principal(
        "evaluate", classifier, "--data", classes, "--suite", "clean,word_swap", "--batch-size", 7, "--out", tmp_path
    )
    assert done.exit_code == 0, done.output
    model, split = load_classifier(str(classifier)), open_split(str(classes), labelled=True)
    for suite, texts in (("clean", split.texts), ("word_swap", swap_lines(split.texts, seed=0))):
        with torch.no_grad():
            answers = [int(model.model(*model.prepare([text])).argmax()) for text in texts]
        (found,) = records(tmp_path, suite=suite, metric="top1")
        assert found["value"] == pytest.approx(np.mean(np.equal(answers, split.labels)))
        assert found["n"] == 40
    assert "word_swap" in done.output


def test_two_classifiers_are_compared_text_by_text(classifier, classes, tmp_path):
    model, tokenizer, reading = read_classifier(classifier)
    torch.nn.init.normal_(model.classify.weight)
    write_classifier(tmp_path / "other", model, tokenizer, reading)
    principal("evaluate", classifier, "--data", classes, "--out", tmp_path / "a")
    done = principal(
        "evaluate", tmp_path / "other", "--data", classes, "--out", tmp_path / "b", "--against", tmp_path / "a"
    )
    assert done.exit_code == 0, done.output
    assert "McNemar" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{language}",), "--data is missing"),
        (("{language}", "--data", "{lines}", "--suite", "attacks"), "no suite of language models 'attacks'"),
        (("{language}", "--data", "{lines}", "--eps", "1/255"), "--eps is for models of images"),
        (
            ("{language}", "--data", "{lines}", "--protocol", "pixel"),
            "'pixel'; expected one of sliding",
        ),
        (
            ("{language}", "--data", "{lines}", "--stride", "11"),
            "expected from 1 to the context of 10",
        ),
        (
            ("{language}", "--data", "{lines}", "--suite", "word_swap", "--swap-rate", "2"),
            "words to swap is 2",
        ),
        (("{language}", "--data", "{lines}", "--split", "nothing"), "has no split 'nothing'"),
        (("{language}", "--data", "{lines}/nowhere"), "there is nothing at"),
        (("{classifier}", "--data", "{classes}", "--stride", "2"), "--stride and --log-probs are for language"),
        (("{classifier}", "--data", "{classes}", "--log-probs"), "--stride and --log-probs are for language"),
        (("{classifier}", "--data", "{lines}"), "no column looks like the label"),
    ],
)
def test_mistakes_are_one_sentence(language, classifier, lines, classes, tmp_path, words, said):
    filled = [w.format(language=language, classifier=classifier, lines=lines, classes=classes) for w in words]
    done = principal("evaluate", *filled, "--out", tmp_path)
    assert done.exit_code == 1
    assert said in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_options_for_texts_are_refused_for_images(tmp_path):
    done = principal("evaluate", "timm:deit_tiny_patch16_224", "--data", "digits", "--stride", 2, "--out", tmp_path)
    assert (done.exit_code, "--stride is for models of text" in done.output) == (1, True)


def test_generate_goes_on_from_a_prompt(language):
    how = ("generate", language, "A mill stood", "--tokens", 25)
    cached, again, greedy = principal(*how), principal(*how, "--no-cache"), principal(*how, "--greedy")
    assert cached.exit_code == 0, cached.output
    assert cached.output == again.output != greedy.output
    assert cached.output.startswith("A mill stood")
    assert cached.output != principal(*how, "--seed", 1).output


def test_generate_streams(language):
    """Words come while later ones are still being computed: the pipe holds some long before the end."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "principal_attention",
        "generate",
        language,
        "A mill",
        "--tokens",
        "20000",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}) as process:
        assert process.stdout.read(40).startswith(b"A mill")
        assert process.poll() is None
        process.kill()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{language}", " "), "the prompt has no word"),
        (("{language}", "A", "--top-p", "0"), "top_p is 0"),
        (("{language}", "A", "--temperature", "-1"), "temperature is -1"),
        (("{classifier}", "A"), "does not hold a language model"),
        (("/nowhere", "A"), "/nowhere holds no config.json"),
    ],
)
def test_generate_answers_mistakes_with_a_sentence(language, classifier, words, said):
    done = principal("generate", *(w.format(language=language, classifier=classifier) for w in words))
    assert done.exit_code == 1
    assert said in done.output
    assert len(done.output.strip().splitlines()) == 1
