"""Options that hold several values, with commas between them."""

from collections.abc import Sequence
from fractions import Fraction

from ..errors import InputError

# What `principal evaluate` has options for; its help groups them so.
TEXTS, IMAGES = "Models of text", "Models of images"


def parse(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(given: Sequence[str], what: str) -> tuple[float, ...]:
    """Fractions or decimals: 8/255, 0.5/255, 0.03."""
    try:
        found = tuple(float(_quotient(word)) for word in given)
    except (ValueError, ZeroDivisionError, OverflowError) as wrong:
        raise InputError(f"--{what} is {','.join(given)}; expected numbers or fractions, as 1/255,0.01") from wrong
    if any(x <= 0 for x in found):
        raise InputError(f"--{what} is {','.join(given)}; expected numbers above 0")
    return found


def _quotient(word: str) -> Fraction:
    above, sign, below = word.partition("/")
    return Fraction(above) / Fraction(below) if sign else Fraction(above)


def check_names(given: Sequence[str], known: Sequence[str], what: str) -> list[str]:
    """Of a comma-separated option; a name that is not known is answered with those that are."""
    if not given:
        raise InputError(f"no {what} was named; expected some of {', '.join(known)}")
    for name in given:
        if name not in known:
            raise InputError(f"there is no {what} {name!r}; expected one of {', '.join(known)}")
    return list(dict.fromkeys(given))
