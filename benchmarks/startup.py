"""Time of commands that need no model, as a multiple of the time of `import torch`.

    .venv/bin/python benchmarks/startup.py --write

Each round starts every command once, in a new process, so that all run under the same load. Ratios are medians over
rounds.
"""

import argparse
import os
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path
from time import perf_counter

from principal_attention.plumbing.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-startup.md"
PRINCIPAL = Path(sys.executable).with_name("principal")
TORCH = "import torch"
COMMANDS = {
    TORCH: [sys.executable, "-c", TORCH],
    "import principal_attention": [sys.executable, "-c", "import principal_attention"],
    "principal --help": [PRINCIPAL, "--help"],
    "principal evaluate --help": [PRINCIPAL, "evaluate", "--help"],
    "principal list recipes": [PRINCIPAL, "list", "recipes"],
    "principal list recipes digits/symvit": [PRINCIPAL, "list", "recipes", "digits/symvit"],
    "principal train digits/symvitt (mistyped)": [PRINCIPAL, "train", "digits/symvitt"],
}


def seconds(words: list) -> float:
    start = perf_counter()
    subprocess.run(words, capture_output=True, check=False)
    return perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks-startup.md")
    given = parser.parse_args()
    for words in COMMANDS.values():
        seconds(words)  # warms the file cache
    rounds = [{name: seconds(words) for name, words in COMMANDS.items()} for _ in range(given.rounds)]
    lines = [
        "# Time to start", "",
        f"`python benchmarks/startup.py --write`, {date.today().isoformat()}, {os.cpu_count()} cores: time of each",
        "command in a new process, relative to `import torch` in the same round; median (smallest to largest) of",
        f"{given.rounds} rounds.", "",
        "| command | × `import torch` |", "|---|---|",
    ]  # fmt: skip
    for name in COMMANDS:
        ratios = [each[name] / each[TORCH] for each in rounds]
        lines.append(f"| `{name}` | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")
    print("\n".join(lines))
    if given.write:
        write_text(PAGE, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
