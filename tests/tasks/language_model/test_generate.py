"""`principal generate` on the command line."""

import io
import os
import shutil
import subprocess
import sys

import pytest

from principal_attention.language.vocabulary import count_words
from text_models import principal


def test_generate_goes_on_from_a_prompt(language):
    how = ("generate", language, "A mill stood", "--tokens", 25)
    cached, again, greedy = principal(*how), principal(*how, "--no-cache"), principal(*how, "--greedy")
    assert cached.exit_code == 0, cached.output
    assert cached.output == again.output != greedy.output
    assert cached.output.startswith("A mill stood")
    assert cached.output != principal(*how, "--seed", 1).output


def test_generate_streams(language):
    """Words arrive in a pipe one by one; with a full output buffer, thousands of bytes would arrive at once."""
    words = ("generate", language, "A mill", "--tokens", "20000")
    command = [sys.executable, "-W", "ignore", "-m", "principal_attention", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}) as process:
        pieces = [os.read(process.stdout.fileno(), 65536) for _ in range(3)]
        assert b"".join(pieces).startswith(b"A mill ")
        assert max(map(len, pieces)) < io.DEFAULT_BUFFER_SIZE // 4
        process.kill()


def test_the_lines_of_a_prompt_are_read_as_lines(language):
    added = {}
    for prompt in ("A mill\n\nA mill", "A mill A mill"):
        for seed in range(5):
            done = principal("generate", language, prompt, "--tokens", 40, "--seed", seed)
            assert done.output.startswith(prompt)
            added[prompt, seed] = done.output.removeprefix(prompt)
    assert len(set(added.values())) > 5  # continuations differ


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{language}", " "), "the prompt is ' '"),
        (("{language}", "caf\udce9"), "the prompt is not UTF-8"),
        (("{language}", "A", "--top-p", "0"), "top_p is 0"),
        (("{language}", "A", "--temperature", "-1"), "temperature is -1"),
        (("{classifier}", "A"), "expected a language model"),
        (("/nowhere", "A"), "expected timm:NAME@weights, hf:FOLDER or the folder of a finished run"),
        (
            ("hf:/nowhere", "A"),
            "there is no folder /nowhere; expected the folder of a finished run with a language model",
        ),
        (("{half}", "A"), "has not finished; use its newest checkpoint with --checkpoint last, or continue"),
    ],
)
def test_generate_answers_mistakes_with_a_sentence(language, classifier, tmp_path, words, said):
    (tmp_path / "recipe.yaml").touch()
    names = dict(language=language, classifier=classifier, half=tmp_path)
    done = principal("generate", *(w.format(**names) for w in words))
    assert done.exit_code == 1
    assert said in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_words_that_the_model_does_not_know_are_told(language):
    done = principal("generate", language, "A mill zzz qqq", "--tokens", 3)
    told = "principal generate: 2 of the prompt's 4 words are not in the vocabulary\n"
    assert (done.exit_code, done.stderr) == (0, told)
    assert principal("generate", language, "A mill", "--tokens", 3).stderr == ""


def test_another_models_vocabulary_is_refused(language, tmp_path):
    shutil.copytree(language, tmp_path / "model")
    count_words([" ".join(map(str, range(500)))]).save(str(tmp_path / "model" / "tokenizer.json"))
    done = principal("generate", tmp_path / "model", "1 2")
    assert (done.exit_code, "expected the tokenizer.json that the model was trained with" in done.output) == (1, True)
