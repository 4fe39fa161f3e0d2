"""Tokenization of texts for classification."""

import pytest

from principal_attention.language.classifier import set_apart


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I don't, and it’s", "I don 't , and it 's"),
        ("the dogs' 'end'", "the dogs ' ' end '"),
        ("a well-known film - in 1,000 halls.", "a well @-@ known film - in 1 @,@ 000 halls ."),
        ("3.5 hours. Long!", "3 @.@ 5 hours . Long !"),
        ("Bad.<br /><br />Really", "Bad . Really"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("naïve 猫!", "naïve 猫 !"),
        ("", ""),
    ],
)  # fmt: skip
def test_texts_are_spelled_as_in_wikitext(text, found):
    assert set_apart(text) == found
