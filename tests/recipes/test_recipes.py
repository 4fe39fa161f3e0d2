"""Recipes: inheritance, overrides, and error messages."""

import math

import pytest
import yaml

from principal_attention.errors import InputError
from principal_attention.recipes import headline, list_recipes, print_recipe, write_recipe
from principal_attention.recipes.files import BUILT_IN
from principal_attention.tasks import read_recipe

SMALL = {"model": {"name": "symvit_tiny_patch16_224"}, "data": {"source": "digits"}}


@pytest.fixture
def write(tmp_path):
    def file(name, content):
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path / f"{name}.yaml"

    return file


@pytest.mark.parametrize("name", list_recipes())
def test_every_built_in_recipe_is_valid_and_says_how_it_is_run(name):
    recipe = read_recipe(name)
    assert recipe.name == name.replace("/", "-")
    first = (BUILT_IN / f"{name}.yaml").read_text().splitlines()[0]
    assert f"train {name}" in first


@pytest.mark.parametrize("name", list_recipes())
def test_a_printed_recipe_is_the_same_recipe(name, write):
    """`principal list recipes NAME > mine.yaml` writes a recipe that equals NAME and contains every key."""
    recipe = read_recipe(name)
    printed = print_recipe(recipe)
    again = read_recipe(str(write("printed", printed)))
    assert again.model_dump() == recipe.model_dump()
    said = [line.strip(" #") for line in printed.splitlines()]
    for key in type(recipe).model_fields:
        assert any(line.startswith(f"{key}:") for line in said)


def test_every_built_in_recipe_has_a_line_of_its_own():
    lines = {name: headline(name) for name in list_recipes()}
    assert all(len(line.split()) > 3 for line in lines.values())
    assert len(set(lines.values())) == len(lines)


def test_the_papers_settings_are_there():
    def pursuit(name):
        return read_recipe(f"imagenet/{name}").model.options

    for n in (4, 5, 6):
        options = pursuit(f"rpc_symvit_tiny_{n}iter_layer1")
        assert options["pursuit"] == {"iterations": n, "lam": 4.0, "preset": "paper"}
        assert options["layers"] == "first"
    for name, lam in (("rpc_symvit_tiny_2iter_all", 3.0), ("rpc_symvit_tiny_2iter_all_lam4", 4.0)):
        assert pursuit(name)["pursuit"] == {"iterations": 2, "lam": lam, "preset": "paper"}
        assert pursuit(name)["layers"] == "all"


RATES = {  # optimizer, rate, clip, steps or epochs, warm-up, smallest rate, batch
    "wikitext/symlm": ("adam", 2.5e-4, 0.25, 500_000, 2000, 0, 96),
    "wikitext/smoe_small": ("adam", 7e-4, None, 60_000, 3000, 7e-4, 96),
    "wikitext/smoe_medium": ("adam", 7e-4, None, 80_000, 4000, 7e-4, 48),
    "text/sst2": ("adam", 1e-4, None, 5, None, 0, 16),
    "text/imdb": ("adam", 1e-4, None, 5, None, 0, 4),
    "text/sst5": ("adam", 6e-5, 0.25, 3, 500, 0, 32),
}


@pytest.mark.parametrize("name", RATES)
def test_language_is_trained_at_the_papers_rates(name):
    """Settings of the original repositories; steps and batches of the mixtures of experts are ours."""
    recipe = read_recipe(name)
    given, schedule = recipe.optimizer, recipe.schedule
    found = (given.name, given.lr, given.clip, schedule.steps or schedule.epochs, schedule.warmup_steps,
             schedule.min_lr, recipe.training.batch_size)  # fmt: skip
    assert found == RATES[name]
    assert given.weight_decay == 0


def test_the_papers_pursuits_in_language_models():
    def told(name):
        found = read_recipe(name).robustify
        return found.preset, found.iterations, found.lam, found.layers

    for name in ("wikitext/rpc_symlm", "wikitext/rpc_symlm_global_mu"):
        assert told(name) == ("paper", 4, 4.0, [0, 1, 2, 3])
    for folder in ("text", "text_small"):
        for task in ("sst2", "imdb", "sst5"):
            assert told(f"{folder}/rpc_{task}") == ("paper", 2, 3.0, "all")
            plain, rpc = (read_recipe(f"{folder}/{kind}{task}").model_dump() for kind in ("", "rpc_"))
            assert {key for key in plain if plain[key] != rpc[key]} == {"name", "robustify"}


def test_deits_recipe_in_full():
    recipe = read_recipe("imagenet/symvit_tiny")
    assert recipe.model.options == {"drop_path_rate": 0.1}
    assert recipe.optimizer.lr * 1024 / recipe.optimizer.lr_batch == pytest.approx(1e-3)
    assert (recipe.optimizer.name, recipe.optimizer.weight_decay) == ("adamw", 0.05)
    schedule = recipe.schedule
    assert (schedule.epochs, schedule.warmup_epochs, schedule.warmup_lr, schedule.min_lr) == (300, 5, 1e-6, 1e-5)
    augment = recipe.augment
    assert (augment.mixup, augment.cutmix, augment.erasing, augment.repeats) == (0.8, 1.0, 0.25, 3)
    assert (augment.rand_augment, augment.crop, augment.flip) == ("rand-m9-mstd0.5-inc1", "resized", 0.5)
    assert (recipe.training.batch_size, recipe.training.smoothing) == (1024, 0.1)


def test_a_file_inherits_key_by_key_and_overrides_come_last(write):
    write("below", SMALL | {"optimizer": {"lr": 0.1, "clip": 1.0}, "augment": {"flip": 0.5}})
    above = write("above", {"base": "below", "optimizer": {"lr": 0.2}})
    recipe = read_recipe(above, ["optimizer.lr=1e-3", "robustify.lam=.inf", "data.mean=[0.1, 0.2, 0.3]", "seed=4"])
    assert (recipe.optimizer.lr, recipe.optimizer.clip, recipe.augment.flip) == (1e-3, 1.0, 0.5)
    assert recipe.robustify.lam == math.inf
    assert (recipe.data.mean, recipe.seed, recipe.name) == ([0.1, 0.2, 0.3], 4, "above")


def test_a_built_in_recipe_can_be_inherited_from_any_folder(write):
    recipe = read_recipe(write("mine", {"base": "digits/symvit", "schedule": {"epochs": 5}}))
    assert (recipe.schedule.epochs, recipe.data.source) == (5, "digits")


def test_what_is_written_is_read_back_the_same(tmp_path, write):
    recipe = read_recipe("digits/rpc_symvit", ["robustify.lam=.inf", "optimizer.betas=[0.9, 0.95]"])
    write_recipe(tmp_path / "recipe.yaml", recipe)
    assert read_recipe(tmp_path / "recipe.yaml") == recipe
    assert read_recipe(tmp_path) == recipe  # a run's folder


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["optimizer.lrr=1"], "unknown key optimizer.lrr; did you mean lr?"),
        (["optimzer.lr=1"], "unknown key optimzer; did you mean optimizer?"),
        (["robustify.lambda=1"], "unknown key robustify.lambda; did you mean lam?"),
        (["training.zzz=1"], "unknown key training.zzz; expected batch_size, accumulate,"),
        (["optimizer.lr=-1"], "optimizer.lr is -1; expected greater than 0"),
        (["optimizer.lr=.nan"], "optimizer.lr is nan; expected"),
        (["schedule.epochs=two"], "schedule.epochs is 'two'; expected a valid integer"),
        (["optimizer.lr=1e-7"], "schedule.min_lr is 1e-05, above the learning rate of 1e-07: lower it as well"),
        (["data.source="], "data.source is None; expected a valid string"),
        (["optimizer.betas=[0.9]"], "optimizer.betas"),
        (["schedule.warmup_epochs=99"], "warmup_epochs is 99; expected less than epochs"),
        (["init_from=runs/x"], "expected either model (from scratch) or init_from (pretrained)"),
        (["name=a/b"], "name: expected a name that can be a folder's"),
        (["seed"], "'seed' is not an override; expected section.key=value"),
        (["seed.x=1", "seed.x.y=2"], "x is 1 and has no keys of its own"),
        (["data={"], "the value is not YAML"),
    ],
)
def test_a_mistake_gets_one_sentence(overrides, sentence):
    with pytest.raises(InputError) as wrong:
        read_recipe("digits/symvit", overrides)
    assert sentence in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n- b\n", "holds list; expected keys and values"),
        ("", "holds NoneType"),
        ("a: [", "is not YAML"),
        ("base: 5", "base of"),
        ("1: 2", "1 is not a valid key; expected task, name, seed"),
        ("base: nowhere", "there is no recipe nowhere"),
        ("base: wrong", "inherits from itself: wrong → wrong"),
        ("data: {source: digits}\nname: x", "expected either model"),
        ("seed: !!python/object/apply:os.system ['true']", "is not YAML"),  # never executed
    ],
)
def test_a_wrong_file_is_named(write, text, sentence):
    path = write("wrong", text)
    with pytest.raises(InputError) as wrong:
        read_recipe(path)
    assert sentence in str(wrong.value)


def test_a_wrong_name_suggests_the_nearest():
    with pytest.raises(InputError, match=r"there is no recipe digits/symvitt.*did you mean digits/symvit\?"):
        read_recipe("digits/symvitt")
