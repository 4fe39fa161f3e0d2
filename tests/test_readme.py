"""Code in the documents runs, and links and names exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))
]  # fmt: skip
BLOCKS = {
    f"{path.name} {number}": block
    for path in DOCUMENTS
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL))
}


def test_there_are_three_uses():
    assert len([name for name in BLOCKS if name.startswith("README")]) >= 3


@pytest.mark.parametrize("name", BLOCKS)
def test_the_code_in_the_documents_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[name], name, "exec"), {"__name__": name})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def test_the_paper_map_names_functions_and_tests_that_exist():
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    names = re.findall(r"`(principal_attention\.[\w.]+|pa\.\w+)`", text)
    assert len(names) > 10
    for name in names:
        module, _, attribute = name.replace("pa.", "principal_attention.").rpartition(".")
        try:
            importlib.import_module(f"{module}.{attribute}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name
    for path, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / path).exists(), path
        assert test in (ROOT / path).read_text(encoding="utf-8"), test
