import json
from collections import Counter

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from principal_attention.errors import InputError
from principal_attention.language.vocabulary import (
    count_words,
    decode,
    encode,
    encode_lines,
    encode_prompt,
    end_of,
    read_tokenizer,
    size_of,
    unknown_of,
)  # fmt: skip
from small_texts import write_letters

LINES = [" = Title = \n", " \n", " the cat saw the other cat , <unk> the dog @-@ like one \n"]


def test_words_are_numbered_by_how_often_they_come():
    tokenizer = count_words(LINES)
    counts = Counter(word for line in LINES for word in line.split() if word != "<unk>")
    words = [tokenizer.id_to_token(i) for i in range(2, size_of(tokenizer))]
    assert set(words) == set(counts)
    assert [counts[word] for word in words] == sorted(counts.values(), reverse=True)
    assert size_of(tokenizer) == tokenizer.get_vocab_size() == 2 + len(counts)  # no gaps
    assert (tokenizer.token_to_id("<unk>"), end_of(tokenizer)) == (0, 1)


def test_a_text_is_its_words_and_the_ends_of_its_lines():
    tokenizer = count_words(LINES)
    found = encode_lines(tokenizer, LINES)
    expected = [w for line in LINES for w in (*line.split(), "<eos>")]
    assert [tokenizer.id_to_token(i) for i in found.tolist()] == expected
    assert decode(tokenizer, found.tolist()).split("\n") == [" ".join(line.split()) for line in LINES] + [""]
    assert encode(tokenizer, ["the zebra"]) == [[tokenizer.token_to_id("the"), 0]]


def test_rare_words_can_be_left_out():
    assert size_of(count_words(LINES, at_least=2)) == 2 + 3  # the, cat, =
    assert size_of(count_words(LINES, size=4)) == 4
    for nothing in (dict(at_least=9), dict(size=2), dict(size=1)):
        with pytest.raises(InputError, match=r"no word is left: expected data\.vocabulary of at least 3"):
            count_words(LINES, **nothing)


def test_the_unknown_word_bears_many_names(subwords):
    assert unknown_of(count_words(LINES)) == 0
    assert unknown_of(read_tokenizer(subwords)) is None  # bytes spell every word
    pieces = Tokenizer(WordPiece({"[UNK]": 0, "[SEP]": 1, "cat": 2}, unk_token="[UNK]"))
    assert unknown_of(pieces) == 0


@pytest.fixture
def subwords(tmp_path):
    return write_letters(tmp_path, LINES, 280)


def test_any_tokenizer_file_works_and_is_given_an_end(subwords):
    tokenizer = read_tokenizer(subwords)
    text = "the cat — 猫 — saw"
    found = encode_lines(tokenizer, [text, "dog"]).tolist()
    assert found.count(end_of(tokenizer)) == 2
    assert max(found) < size_of(tokenizer)
    assert decode(tokenizer, found) == f"{text}\ndog\n"


def test_truncation_and_padding_of_a_file_are_not_used(subwords):
    content = json.loads((subwords / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (subwords / "tokenizer.json").write_text(json.dumps(content))
    assert len(encode(read_tokenizer(subwords), ["the cat saw the other cat"])[0]) > 2


def test_what_is_no_tokenizer_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no tokenizer at"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read as a tokenizer"):
        read_tokenizer(tmp_path)
    with pytest.raises(InputError, match="text 1 is None; expected a string"):
        encode(count_words(LINES), ["a", None])


@pytest.mark.parametrize("text", ["the cat", "the cat\n", "the\n\ncat saw", "\n"])
def test_a_prompt_is_what_the_same_text_is_in_training_but_for_its_end(text):
    tokenizer = count_words(LINES)
    found = encode_prompt(tokenizer, text)
    assert decode(tokenizer, found) == text
    assert [*found, end_of(tokenizer)] == encode_lines(tokenizer, text.split("\n")).tolist()


def test_half_a_letter_is_refused():
    with pytest.raises(InputError, match="text 1 is not UTF-8"):
        encode(count_words(LINES), ["猫", b"caf\xe9".decode(errors="surrogateescape")])


def test_a_text_of_many_lines_is_the_texts_of_its_lines():
    """A long text is encoded in parts."""
    tokenizer, lines = count_words(LINES), LINES * 7000
    whole = encode_lines(tokenizer, lines)
    assert torch.equal(whole, encode_lines(tokenizer, LINES).repeat(7000))
    assert encode_lines(tokenizer, []).tolist() == []
