import numpy as np
import pytest

from principal_attention.errors import InputError
from principal_attention.language.word_swap import REPLACEMENT, STOP_WORDS, core, swap_lines, swap_words

LINE = " The cat , which <unk> had 3 @-@ legged friends ,  sat on the mat . \n"


def swapped(before, after):
    pairs = list(zip(before.split(), after.split(), strict=True))
    assert all(b in (a, REPLACEMENT) for a, b in pairs)
    return [a for a, b in pairs if a != b]


def test_one_word_at_least_and_never_a_stop_word_or_a_mark():
    seen = set()
    for seed in range(200):
        changed = swap_words(LINE, seed=seed)
        (word,) = swapped(LINE, changed)
        seen.add(word)
        assert changed.count(REPLACEMENT) == 1
    assert seen == {"cat", "3", "legged", "friends", "sat", "mat"}


def test_what_is_between_words_stays():
    changed = swap_words(LINE, seed=3)
    (word,) = swapped(LINE, changed)
    assert changed.replace(REPLACEMENT, word) == LINE


def test_one_and_a_half_percent_of_the_words():
    """The rate counts all words of a line, including stop words, rounded down: three in 200 words."""
    line = " ".join(f"word{i}" if i % 2 else "the" for i in range(200))
    assert len(swapped(line, swap_words(line))) == 3
    assert len(swapped(line, swap_words(line, rate=0.1))) == 20
    assert len(swapped(line, swap_words(line, rate=1.0))) == 100  # stop words are kept at rate 1 too


@pytest.mark.parametrize("line", ["", " \n", " the of it 's , . @-@ <unk>"])
def test_a_line_without_a_word_to_swap_stays(line):
    assert swap_words(line) == line


def test_a_line_is_swapped_by_its_number_and_the_seed_alone():
    lines = [f"{a} {b} {c} one two three" for a in "rst" for b in "uvw" for c in "xyz"]
    whole = swap_lines(lines, seed=5)
    assert whole[7:] == [swap_words(line, seed=5, number=7 + i) for i, line in enumerate(lines[7:])]
    assert whole != swap_lines(lines, seed=6)
    places = [after.split().index(REPLACEMENT) for after in swap_lines(["a1 b2 c3 d4 e5"] * 400, seed=5)]
    counts = np.bincount(places, minlength=5)
    assert counts.min() > 400 / 5 - 4 * np.sqrt(400 * 0.2 * 0.8)  # four standard deviations of a uniform choice


def test_stop_words_are_lower_case_and_matched_in_any():
    assert all(word == word.lower() for word in STOP_WORDS)
    assert core("The") is None
    assert core("AAA") is not None


@pytest.mark.parametrize(
    "line", ["I can't , won’t and ain't .", "I ca n't , wo n't and ai n't .", "I can 't , won ’t and ain 't ."]
)
def test_negated_auxiliaries_stay_however_they_are_spelled(line):
    assert swap_words(line) == line
    assert swap_words("they won") == f"they {REPLACEMENT}"  # the verb is none


def test_a_share_that_binary_fractions_miss_is_not_rounded_down():
    line = " ".join(f"word{i}" for i in range(100))
    assert 0.29 * 100 < 29
    assert len(swapped(line, swap_words(line, rate=0.29))) == 29


@pytest.mark.parametrize(
    "word", ["it,", "the.", "(of", "don't", "isn’t", "I'm", "it's", "can't", "/><br", "<unk>", "[UNK]", "--"]
)
def test_texts_that_are_not_tokenised_keep_stop_words_and_marks_too(word):
    assert core(word) is None


@pytest.mark.parametrize(
    ("word", "kept"), [("film.", "AAA."), ('"great"', '"AAA"'), ("dog's", "AAA"), ("(1984)", "(AAA)")]
)
def test_punctuation_around_a_word_stays(word, kept):
    assert swap_words(f"the {word} of") == f"the {kept} of"


@pytest.mark.parametrize("rate", [0, -0.1, 1.1, float("nan")])
def test_a_rate_is_a_share(rate):
    with pytest.raises(InputError, match="expected a number above 0 and at most 1"):
        swap_words("some words", rate=rate)
