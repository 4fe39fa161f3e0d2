"""The word-swap attack: some words of each line become "AAA", words that only hold a sentence together do not.

The paper names its settings and no list of stop words; ours are English's closed classes.
"""

import re
from collections.abc import Sequence

import numpy as np

from ..errors import InputError
from ..plumbing.seeds import words as random_words
from .config import SWAP_RATE

RATE, REPLACEMENT = SWAP_RATE, "AAA"
_CLOSED_CLASSES = (
    # articles, determiners, pronouns
    """a an the this that these those some any no each every either neither both all such another other i me my mine
    myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
    itself they them their theirs themselves one who whom whose which what there here """
    # prepositions, conjunctions
    """about above across after against along among around as at before behind below beneath beside between beyond by
    down during except for from in inside into like near of off on onto out outside over past per since than through
    throughout till to toward towards under until up upon via with within without and but or nor so yet if because
    although though while whereas whether unless when where why how """
    # auxiliaries, negation, particles
    """am is are was were be been being do does did doing done have has had having can could may might must shall
    should will would ought cannot not n't 's 'm 're 've 'll 'd s t too very just only then also again more most own
    same few once now"""
)
STOP_WORDS = frozenset(_CLOSED_CLASSES.split())
_NEGATION = ("n't", "'t")  # only auxiliaries take it; texts have it in one with them, as "do n't" and as "don 't"
_CLITICS = ("'s", "'m", "'re", "'ve", "'ll", "'d")
_CORE = re.compile(r"\w(?:.*\w)?", re.DOTALL)


def core(word: str, following: str = "") -> re.Match[str] | None:
    """What of it may be swapped: without the punctuation around it; nothing of stop words, marks like @-@, <unk>, [UNK]
    and <br />, or punctuation alone. The word that follows tells an auxiliary by its negation."""
    found = _CORE.search(word)
    if found is None or "<" in word or ">" in word or (word[0], word[-1]) == ("[", "]"):
        return None
    plain = _plain(found.group())
    if plain.endswith(_NEGATION) or _plain(following) in _NEGATION:
        return None
    bare = next((plain.removesuffix(end) for end in _CLITICS if plain.endswith(end)), plain)
    return None if plain in STOP_WORDS or bare in STOP_WORDS or not any(map(str.isalnum, plain)) else found


def _plain(word: str) -> str:
    return word.lower().replace("’", "'")


def swap_words(line: str, *, seed: int = 0, number: int = 0, rate: float = RATE) -> str:
    """A line with `rate` of its words, and at least one, replaced; which ones depends on the seed and the line's
    number alone. A line without a word that may be swapped, an empty one for example, stays as it is."""
    if not 0 < rate <= 1:
        raise InputError(f"the share of words to swap is {rate}; expected more than 0, and at most 1")
    words = list(re.finditer(r"\S+", line))
    following = [*(word.group() for word in words[1:]), ""]
    places = [
        (word.start() + found.start(), word.start() + found.end())
        for word, after in zip(words, following, strict=False)
        if (found := core(word.group(), after))
    ]
    if not places:
        return line
    count = min(len(places), max(1, int(rate * len(words) + 1e-9)))  # 0.29 · 100 is 29
    random = np.random.default_rng(random_words("swap", seed, number))
    pieces, at = [], 0
    for place in sorted(random.choice(len(places), count, replace=False)):
        start, end = places[place]
        pieces += [line[at:start], REPLACEMENT]
        at = end
    return "".join([*pieces, line[at:]])


def swap_lines(lines: Sequence[str], *, seed: int = 0, rate: float = RATE) -> list[str]:
    """Lines numbered from 0 on."""
    return [swap_words(line, seed=seed, number=number, rate=rate) for number, line in enumerate(lines)]
