"""Tables of an evaluation for the terminal and for Markdown, from its records."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..evaluation.compare import Paired
from ..evaluation.results import budget, corruption_groups
from ..vision.attacks import ATTACKS
from ..vision.corruptions import CORRUPTIONS
from .tables import Rows

if TYPE_CHECKING:  # brings the libraries of images, which records of texts do not need
    from ..evaluation.masking import Check


def accuracy_rows(records: Sequence[dict[str, Any]]) -> Rows:
    """Clean, attacks, swapped words and other sets: what, how, how many examples, top-1 with its interval."""
    rows = [["case", "setting", "examples", "top-1 %", "95%", "minutes"]]
    for each in sorted(records, key=_place):
        if each["metric"] == "top1" and each["suite"] != "corruptions":
            value, low, high = (f"{100 * each[key]:.1f}" for key in ("value", "low", "high"))
            minutes = f"{each['seconds'] / 60:.1f}"
            rows.append([each["case"], setting(each), str(each["n"]), value, f"{low} to {high}", minutes])
        elif each["metric"] == "aupr":
            what, value = f"AUPR against {each['negatives']}", f"{100 * each['value']:.1f}"
            rows.append([each["case"], what, str(each["n"]), value, "", f"{each['seconds'] / 60:.1f}"])
    return rows if len(rows) > 1 else []


def _place(each: dict[str, Any]) -> tuple[Any, ...]:
    """Attacks in the order they are listed in, by protocol, and from the smallest budget on; the rest as it came."""
    if each["suite"] != "attacks" or each["case"] not in ATTACKS:
        return (each["suite"] != "clean", -1)
    return (True, list(ATTACKS).index(each["case"]), each["protocol"], each["norm"], each["eps"])


def perplexity_rows(records: Sequence[dict[str, Any]]) -> Rows:
    """Language models: a row a protocol and text."""
    rows = [["text", "setting", "tokens", "perplexity", "a word", "unknown", "minutes"]]
    for each in records:
        if each["metric"] != "perplexity":
            continue
        case = [x for x in records if _setting(x) == _setting(each)]
        more = {x["metric"]: x["value"] for x in case}
        rows.append([
            each["data"], _protocol(each), str(each["n"]), f"{each['value']:.2f}",
            f"{more['word_perplexity']:.2f}" if "word_perplexity" in more else "–",
            f"{100 * more['unknown_share']:.1f}%", f"{each['seconds'] / 60:.1f}",
        ])  # fmt: skip
    if all(row[4] in (row[3], "–") for row in rows[1:]):  # a vocabulary of words: a token is a word
        rows = [row[:4] + row[5:] for row in rows]
    return rows if len(rows) > 1 else []


def _protocol(each: dict[str, Any]) -> str:
    told = str(each["protocol"].partition(", first")[0])  # how many tokens has a column
    if "swap" not in each:
        return told
    where = "inputs" if each["swap"] == "inputs" else "inputs and targets"
    return f"{told}; {100 * each['rate']:g}% swapped in {where}, seed {each['seed']}"


def _setting(each: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in each.items() if key not in ("metric", "value")}


def setting(each: dict[str, Any]) -> str:
    """What pins an attack down, in a few words."""
    if each["suite"] == "word_swap":
        return f"{each['data']}, {100 * each['rate']:g}% swapped, seed {each['seed']}"
    if each["suite"] != "attacks":
        return str(each.get("data") or "")
    norm = {"linf": "", "l2": " (ℓ2)", "l1": " (ℓ1)"}[each["norm"]]
    words = [f"ε = {budget(each['eps'])}{norm}"]
    if "steps" in each:
        words.append(f"{each['steps']} {'queries' if each['case'] == 'square' else 'steps'}")
    words += [f"{each[key]} {key}" for key in ("targets", "samples") if key in each]
    if each["gradients"] != "own":
        words.append(f"{each['gradients']} gradients" if each["gradients"] != "transfer" else f"from {each['source']}")
    return ", ".join([*words, each["protocol"]])


def corruption_tables(records: Sequence[dict[str, Any]]) -> list[tuple[str, Rows]]:
    """A row a kind, a column a severity; then their mean, and CE and mCE where they are defined."""
    tables = []
    for told, found in corruption_groups(records):
        severities = sorted({severity for _, severity in found})
        same = [each for each in records if all(each.get(key) == x for key, x in told.items())]
        ce = {each["case"]: each["value"] for each in same if each["metric"] in ("ce", "mce")}
        rows = [["corruption", *(f"severity {s}" for s in severities), *(["CE"] if ce else [])]]
        for name in CORRUPTIONS:
            if any((name, s) in found for s in severities):
                cells = [f"{100 * found[name, s]:.1f}" if (name, s) in found else "–" for s in severities]
                rows.append([name, *cells, *([f"{100 * ce[name]:.1f}"] if ce else [])])
        means = [[value for (_, severity), value in found.items() if severity == s] for s in severities]
        mce = [f"{100 * ce['mean']:.1f}"] if ce else []
        rows.append(["mean", *(f"{100 * sum(values) / len(values):.1f}" for values in means), *mce])
        tables.append((f"top-1 in % under corruption, {told['n']} images of {told['data']}", rows))
    return tables


def comparison_rows(found: Sequence[tuple[dict[str, Any], Paired]]) -> Rows:
    rows = [["case", "setting", "examples", "difference", "95%", "only ours", "only theirs", "p", ""]]
    for each, pair in found:
        how = f"severity {each['severity']}" if "severity" in each else setting(each)
        rows.append([
            each["case"], how, str(pair.n), f"{100 * pair.difference:+.1f}",
            f"{100 * pair.low:+.1f} to {100 * pair.high:+.1f}", str(pair.only_ours), str(pair.only_theirs),
            f"{pair.p:.3f}", pair.verdict(),
        ])  # fmt: skip
    return rows if len(rows) > 1 else []


def check_lines(checks: Sequence["Check"]) -> list[str]:
    return [f"{'✓' if check.passed else '!'} {check.sentence}" for check in checks]
