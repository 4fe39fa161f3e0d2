"""Modules import only from lower layers; imports inside functions and for types count too."""

import ast
from pathlib import Path

import pytest

PACKAGE = "principal_attention"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

# From the ground up. A room imports rooms of lower floors; rooms of one floor know nothing of each other.
FLOORS = (
    ("errors", "version"),
    ("plumbing", "installs", "sdpa"),
    ("kernel_pca", "pcp", "pursuit"),
    ("attention", "robust_pca"),
    ("modules",),
    ("adapt", "data"),
    ("recipes", "vision", "language"),
    ("training", "evaluation", "analysis"),
    ("tasks",),
    ("tasks.image_classes", "tasks.language_model", "tasks.text_classes"),
    ("report",),
    ("cli",),
)
# What `import principal_attention` brings, and what it names and brings later; nothing imports it in turn.
ROOT = {"errors", "version", "installs", "kernel_pca", "pcp", "pursuit", "attention", "modules"}
ROOT_LATER = {"adapt", "robust_pca", "vision"}
KINDS = {room for floor in FLOORS for room in floor if room.startswith("tasks.")}
# The engines and the command line name no kind; the demo is about one.
NAMES_A_KIND = {("cli.demo", "tasks.image_classes")}


def module_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SOURCE.rglob("*.py")}


def room_of(module):
    """The longest listed subpackage that contains the module; "" is the package itself."""
    rooms = [room for floor in FLOORS for room in floor if module == room or module.startswith(f"{room}.")]
    return max(rooms, key=len, default="" if module in ("", "__main__") else None)


def imports(module, tree=None):
    """Modules of this package that a module imports."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree or ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named = [alias.name.split(".") for alias in node.names]
            yield from (".".join(name[1:]) for name in named if name[0] == PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = [*[part for part in package if part][: len(package) - node.level + 1], *base]
            elif base[:1] == [PACKAGE]:
                base = base[1:]
            else:
                continue
            for alias in node.names:
                below = ".".join([*base, alias.name])
                yield below if below in MODULES else ".".join(base)


EDGES = {(module, target) for module in MODULES for target in imports(module) if target != module}


def test_every_module_has_a_floor():
    assert [module for module in MODULES if room_of(module) is None] == []
    assert len(EDGES) > 500  # the import reader works


def test_imports_only_go_down():
    height = {room: number for number, floor in enumerate(FLOORS) for room in floor}
    wrong = []
    for module, target in EDGES:
        here, there = room_of(module), room_of(target)
        if module in ("", "__main__") or here == there:
            continue
        if there == "" or height[there] >= height[here]:
            wrong.append(f"{module} → {target}")
    assert wrong == []


def test_the_package_itself_brings_the_mathematics_alone():
    brought = {room_of(target) for module, target in EDGES if module == ""}
    assert brought == ROOT | ROOT_LATER


def test_nobody_below_the_rooms_names_a_kind():
    named = {(module, room_of(target)) for module, target in EDGES if room_of(target) in KINDS}
    assert {each for each in named if room_of(each[0]) not in KINDS} == NAMES_A_KIND


def test_no_module_leads_back_to_itself():
    """Imports inside functions count; the imports of a package's `__init__` from its own modules do not."""
    below = {module: set() for module in MODULES}
    for module, target in EDGES:
        lists = MODULES[module].name == "__init__.py" and target.startswith(module)
        if not module.startswith(f"{target}.") and not lists:
            below[module].add(target)
    done, path = set(), []

    def walk(module):
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for target in sorted(below[module]):
            walk(target)
        path.pop()
        done.add(module)

    for module in sorted(below):
        walk(module)


@pytest.mark.parametrize(
    ("module", "line", "expected"),
    [
        ("sdpa", "from .adapt import robustify", "adapt"),
        ("sdpa", "def f():\n    from .vision.models import load", "vision.models.load"),
        ("vision.models.load", "from ...language.texts import Texts", "language.texts"),
        ("vision.models.load", "from . import names", "vision.models.names"),
        ("pursuit.rpc", "from .. import __version__", ""),
        ("pursuit.rpc", "import principal_attention.cli.app", "cli.app"),
        ("cli", "from .app import app", "cli.app"),
    ],
)
def test_imports_are_read_wherever_they_stand(module, line, expected):
    """The import reader, on statements that do not occur in the package."""
    assert list(imports(module, ast.parse(line))) == [expected]
