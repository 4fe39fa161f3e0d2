"""`principal generate` as typed."""

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
    """A pipe holds a few words at a time; were they kept until a buffer is full, it would be thousands of bytes."""
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
        done = principal("generate", language, prompt, "--tokens", 40)
        assert done.output.startswith(prompt)
        added[prompt] = done.output.removeprefix(prompt)
    assert len(set(added.values())) == 2  # the model is asked to go on from other tokens


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{language}", " "), "the prompt has no word"),
        (("{language}", "caf\udce9"), "text 0 is not UTF-8"),
        (("{language}", "A", "--top-p", "0"), "top_p is 0"),
        (("{language}", "A", "--temperature", "-1"), "temperature is -1"),
        (("{classifier}", "A"), "expected a language model"),
        (("/nowhere", "A"), "/nowhere holds no config.json"),
    ],
)
def test_generate_answers_mistakes_with_a_sentence(language, classifier, words, said):
    done = principal("generate", *(w.format(language=language, classifier=classifier) for w in words))
    assert done.exit_code == 1
    assert said in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_another_models_vocabulary_is_refused(language, tmp_path):
    shutil.copytree(language, tmp_path / "model")
    count_words([" ".join(map(str, range(500)))]).save(str(tmp_path / "model" / "tokenizer.json"))
    done = principal("generate", tmp_path / "model", "1 2")
    assert (done.exit_code, "expected the tokenizer.json it was trained with" in done.output) == (1, True)
