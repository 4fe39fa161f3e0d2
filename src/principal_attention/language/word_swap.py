"""Word-swap attack: replace some words of each line by "AAA", except stop words.

The paper does not publish its list of stop words; here they are the closed word classes of English.
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
_NEGATION = ("n't", "'t")  # endings of auxiliaries; tokenized texts spell "don't" as "do n't" or "don 't" as well
_CLITICS = ("'s", "'m", "'re", "'ve", "'ll", "'d")
_CORE = re.compile(r"\w(?:.*\w)?", re.DOTALL)


def core(word: str, following: str = "") -> re.Match[str] | None:
    """Match of the part of a word that may be replaced: the word without punctuation around it. None for stop words,
    marks such as @-@, <unk>, [UNK] and <br />, and punctuation alone. `following`: the next word, since a negation such
    as "'t" marks an auxiliary."""
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
    """Line with a share `rate` of its words, at least one, replaced. The choice of words depends only on `seed` and
    `number`, the number of the line. A line without replaceable words is returned unchanged."""
    if not 0 < rate <= 1:
        raise InputError(f"the share of words to swap is {rate}; expected a number above 0 and at most 1")
    words = list(re.finditer(r"\S+", line))
    following = [*(word.group() for word in words[1:]), ""]
    places = [
        (word.start() + found.start(), word.start() + found.end())
        for word, after in zip(words, following, strict=False)
        if (found := core(word.group(), after))
    ]
    if not places:
        return line
    count = min(len(places), max(1, int(rate * len(words) + 1e-9)))  # so that 0.29 · 100 gives 29 despite rounding
    random = np.random.default_rng(random_words("swap", seed, number))
    pieces, at = [], 0
    for place in sorted(random.choice(len(places), count, replace=False)):
        start, end = places[place]
        pieces += [line[at:start], REPLACEMENT]
        at = end
    return "".join([*pieces, line[at:]])


def swap_lines(lines: Sequence[str], *, seed: int = 0, rate: float = RATE) -> list[str]:
    """Lines with swapped words; they are numbered from 0."""
    return [swap_words(line, seed=seed, number=number, rate=rate) for number, line in enumerate(lines)]
