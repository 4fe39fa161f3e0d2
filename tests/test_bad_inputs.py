"""Wrong arguments and damaged files: the error is one sentence that names the cause, and no file changes."""

import hashlib
import io
import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

from principal_attention.cli.app import app
from principal_attention.tasks import read_recipe, train

SHORT = (
    "model.options.depth=1", "model.options.embed_dim=24", "data.limit=128", "schedule.epochs=2",
    "schedule.warmup_epochs=0",
)  # fmt: skip
DEIT = "timm:deit_tiny_patch16_224"
DIGITS = "digits/symvit " + " ".join(SHORT)
WORDS = "wikitext_small/symlm data.source=lines model.options.context=12 data.min_count=1 training.batch_size=4"
TELL = "text_small/sst2 data.source=classes init_from=language"
IMAGE = "image --data pictures"
ATTACK, CORRUPT = f"{IMAGE} --suite attacks", f"{IMAGE} --suite corruptions"
TEXT = "language --data lines"
SWAP = f"{TEXT} --suite word_swap"
SAY = "language 'A mill'"

# What is typed after the command, and what the sentence must hold. Names are those of the folder `world`.
CASES = {
    "": {
        "an unknown command": ("trian digits/symvit", "No such command 'trian'"),
        "an unknown option before the command": ("--verison", "No such option: --verison"),
        "an empty command": ("''", "No such command ''"),
    },
    "list": {
        "an unknown list": ("weather", "there is no list of 'weather'; expected one of recipes"),
        "a list of no name": ("''", "there is no list of ''"),
        "a list in other letters": ("'Größe 1'", "there is no list of 'Größe 1'"),
        "no list": ("", "Missing argument"),
        "two lists": ("recipes models", "there is no recipe models"),
        "an unknown option": ("recipes --all", "No such option: --all"),
    },
    "harden": {
        "no model": ("--data pictures", "Missing argument 'MODEL'"),
        "no data": ("image", "Missing option '--data'"),
        "a model that is not there": ("nowhere --data pictures", "the model is nowhere"),
        "a model of another kind": ("language --data lines", "language models cannot be hardened"),
        "a run that has not finished": ("unfinished --data pictures", "has not finished"),
        "cut weights": ("image-cut --data pictures", "image-cut"),
        "data that are not there": ("image --data /nowhere", "there is nothing at /nowhere"),
        "data without a name": ("image --data ''", "--data is ''"),
        "data in an empty folder": ("image --data empty", "empty holds neither parquet nor images"),
        "texts in the place of pictures": ("image --data lines", "no column holds the image"),
        "an unknown threat": (f"{IMAGE} --against weather", "--against is 'weather'; expected one of linf"),
        "an unknown split": (f"{IMAGE} --split weather", "has no split 'weather'"),
        "more held out than there are": (f"{IMAGE} --holdout 1000", "data.holdout is 1000"),
        "none held out": (f"{IMAGE} --holdout 0", "Invalid value for '--holdout'"),
        "a budget above 1": (f"{IMAGE} --eps 8", "adversarial.eps is '8'"),
        "a budget of 0": (f"{IMAGE} --eps 0", "adversarial.eps is '0'"),
        "a budget in words": (f"{IMAGE} --eps small", "expected a number or a fraction"),
        "no steps": (f"{IMAGE} --steps 0", "Invalid value for '--steps'"),
        "an unknown loss": (f"{IMAGE} --loss hinge", "adversarial.loss is 'hinge'"),
        "an option of another threat": (f"{IMAGE} --patch 32", "--patch was given with --against linf"),
        "an unknown corruption": (f"{IMAGE} --against corruptions --corruptions rain", "'rain'; expected some of"),
        "a patch larger than the image": (f"{IMAGE} --against patch --patch 100", "patch is 100"),
        "RPC-Attention of no words": (f"{IMAGE} --robustify ''", "--robustify is ''"),
        "an unknown key": (f"{IMAGE} optimizer.rl=1", "unknown key optimizer.rl"),
        "a teacher and labels": (f"{IMAGE} adversarial.loss=pgd", "uses labels, and teacher is self"),
        "no seed": (f"{IMAGE} --seed -1", "Invalid value for '--seed'"),
        "--out is a file": (f"{IMAGE} --out file.txt", "file.txt"),
        "--out holds another run": (f"{IMAGE} --out run", "the run in run was started with"),
        "--out holds an evaluation": (f"{IMAGE} --out evaluation", "evaluation holds an evaluation"),
        "--out is the model": (f"{IMAGE} --out image", "image holds a model"),
    },
    "certify": {
        "no data": ("image --patch 4", "--data is missing"),
        "a model of another kind": ("language --data lines", "there is no suite of language models 'certificate'"),
        "no patch": (f"{IMAGE} --patch 0", "--patch"),
        "a patch in words": (f"{IMAGE} --patch large", "--patch"),
        "a patch larger than the image": (f"{IMAGE} --patch 100", "patch is 100"),
        "--out holds a demo": (f"{IMAGE} --patch 4 --out demo", "demo holds a demo"),
    },
    "demo": {
        "no seed": ("--seeds 0", "Invalid value for '--seeds'"),
        "fewer than no seeds": ("--seeds -2", "Invalid value for '--seeds'"),
        "half a seed": ("--seeds 1.5", "Invalid value for '--seeds'"),
        "seeds in words": ("--seeds three", "Invalid value for '--seeds'"),
        "seeds that are no number": ("--seeds nan", "Invalid value for '--seeds'"),
        "an unknown option": ("--epochs 3", "No such option: --epochs"),
        "an argument": ("runs/demo", "(runs/demo)"),
        "--out is a file": ("--out file.txt", "file.txt"),
        "--out is below a file": ("--out file.txt/demo", "file.txt/demo"),
        "--out cannot be made": ("--out /proc/demo", "/proc/demo"),
        "--out holds a run": ("--out run", "run holds a training run"),
        "--out holds an evaluation": ("--out evaluation", "evaluation holds an evaluation"),
        "--out holds an analysis": ("--out analysis", "analysis holds an analysis"),
        "--out holds a model": ("--out image", "image holds a model"),
    },
    "train": {
        "no recipe": ("", "Missing argument"),
        "a recipe that is not there": ("digits/weather", "there is no recipe digits/weather"),
        "a recipe without a name": ("''", "there is no recipe ''"),
        "a recipe in other letters": ("'größe 2.yaml'", "there is no recipe größe 2.yaml"),
        "a folder in the place of a recipe": ("pictures", "there is no recipe pictures"),
        "words in the place of a recipe": ("file.txt", "file.txt holds str; expected keys and values"),
        "a picture in the place of a recipe": ("frost/frost1.png", "frost/frost1.png holds str"),
        "weights in the place of a recipe": ("weights.pth", "weights.pth is not YAML"),
        "a recipe that loops in the file system": ("loop", "there is no recipe loop"),
        "a recipe of broken YAML": ("broken.yaml", "broken.yaml is not YAML"),
        "a recipe of broken YAML in other letters": ("'käse 1.yaml'", "käse 1.yaml is not YAML"),
        "an empty recipe": ("nothing.yaml", "nothing.yaml holds NoneType"),
        "a recipe that is a list": ("list.yaml", "list.yaml holds list"),
        "a recipe that is not text": ("bytes.yaml", "bytes.yaml is not YAML"),
        "a recipe that inherits from itself": ("itself.yaml", "itself.yaml inherits from itself"),
        "a recipe whose base is not there": ("orphan.yaml", "no_such_base"),
        "a recipe whose base is a number": ("numbered.yaml", "base of numbered.yaml is 3"),
        "a recipe of no kind that there is": ("other.yaml", "task is 'weather'; expected one of images"),
        "a recipe with an unknown key": ("unknown.yaml", "unknown key wheather"),
        "a run whose recipe is damaged": ("run-badrecipe --resume", "run-badrecipe/recipe.yaml is not YAML"),
        "an override without a value": (f"{DIGITS} optimizer.lr", "'optimizer.lr' is not an override"),
        "an override without a key": (f"{DIGITS} =3", "'=3' is not an override"),
        "an override of an empty section": (f"{DIGITS} .lr=3", "'.lr=3' is not an override"),
        "an override of nothing": (f"{DIGITS} ''", "'' is not an override"),
        "an override below a value": (f"{DIGITS} seed.lr=3", "seed is {'lr': 3}"),
        "an unknown option": (f"{DIGITS} --lr 3", "No such option: --lr"),
        "a rate that is no number": (f"{DIGITS} optimizer.lr=.nan", "optimizer.lr is nan"),
        "an infinite rate": (f"{DIGITS} optimizer.lr=.inf", "optimizer.lr is inf"),
        "a rate below 0": (f"{DIGITS} optimizer.lr=-1", "optimizer.lr is -1"),
        "a rate in words": (f"{DIGITS} optimizer.lr=fast", "optimizer.lr is 'fast'"),
        "an unknown optimizer": (f"{DIGITS} optimizer.name=adamm", "optimizer.name is 'adamm'"),
        "no epochs": (f"{DIGITS} schedule.epochs=0", "schedule.epochs is 0"),
        "half an epoch": (f"{DIGITS} schedule.epochs=1.5", "schedule.epochs is 1.5"),
        "a warm-up longer than the training": (f"{DIGITS} schedule.warmup_epochs=9", "warmup_epochs is 9"),
        "an empty batch": (f"{DIGITS} training.batch_size=0", "training.batch_size is 0"),
        "a batch of more than all": (f"{DIGITS} training.batch_size=4000", "batch_size is 4000"),
        "a seed below 0": (f"{DIGITS} seed=-1", "seed is -1"),
        "a precision that there is not": (f"{DIGITS} training.precision=float8", "training.precision is 'float8'"),
        "float16 without a GPU": (f"{DIGITS} training.precision=float16", "training.precision is float16"),
        "averaged weights that never move": (f"{DIGITS} training.ema=1", "training.ema is 1"),
        "a name that is a path": (f"{DIGITS} name=../up", "name"),
        "an empty name": (f"{DIGITS} name=\"''\"", "name"),
        "a task of another kind": (f"{DIGITS} augment.flip=0.5 task=language", "unknown key augment"),
        "neither a model nor a start": (f"{DIGITS} model=null", "expected either model"),
        "both a model and a start": (f"{DIGITS} init_from=image", "expected either model"),
        "an unknown model": (f"{DIGITS} model.name=symvit_tiny", "there is no model symvit_tiny"),
        "an unknown option of a model": (f"{DIGITS} model.options.deep=3", "deep"),
        "a model without layers": (f"{DIGITS} model.options.depth=0", "depth"),
        "a model of fewer than no layers": (f"{DIGITS} model.options.depth=-1", "depth"),
        "heads that do not fit": (f"{DIGITS} model.options.num_heads=5", "num_heads"),
        "patches larger than the image": (f"{DIGITS} model.options.patch_size=64", "takes no images of 8×8"),
        "no classes": (f"{DIGITS} model.options.num_classes=-2", "num_classes is -2"),
        "an unknown preset": (f"{DIGITS} robustify.preset=best", "preset is 'best'"),
        "a layer that there is not": (f"{DIGITS} robustify.layers=[7]", "layer 7 was chosen"),
        "a λ below 0": (f"{DIGITS} robustify.lam=-1", "robustify.lam is -1"),
        "a λ that is no number": (f"{DIGITS} robustify.lam=.nan", "robustify.lam is nan"),
        "data that are not there": (f"{DIGITS} data.source=./nowhere", "there is nothing at ./nowhere"),
        "data without a name": (f"{DIGITS} data.source=\"''\"", "data.source is ''"),
        "data that are no table": (f"{DIGITS} data.source=file.txt", "file.txt is a file but not parquet"),
        "data that are damaged": (f"{DIGITS} data.source=table.parquet", "table.parquet"),
        "data in an empty folder": (f"{DIGITS} data.source=empty", "empty holds neither parquet nor images"),
        "data without images": (f"{DIGITS} data.source=lines", "no column holds the image"),
        "an unknown split": (f"{DIGITS} data.validation=weather", "has no split 'weather'"),
        "an unknown column": (f"{DIGITS} data.image=weather", "data.image is 'weather'"),
        "a column of something else": (f"{DIGITS} data.label=image", "data.label is 'image'"),
        "more held out than there is": (f"{DIGITS} data.holdout=9999", "data.holdout is 9999"),
        "held out twice": (f"{DIGITS} data.holdout=5 data.validation=validation", "data.holdout is 5"),
        "no examples": (f"{DIGITS} data.limit=0", "data.limit is 0"),
        "a mean of too many channels": (f"{DIGITS} data.mean=[0.1,0.2]", "data.mean and data.std have 2"),
        "a deviation of 0": (f"{DIGITS} data.std=[0]", "data.std is 0"),
        "an unknown augmentation": (f"{DIGITS} augment.rand_augment=weather", "weather"),
        "a flip beyond 1": (f"{DIGITS} augment.flip=1.5", "augment.flip is 1.5"),
        "pairs of an odd batch": (f"{DIGITS} augment.mixup=1 training.batch_size=7", "training.batch_size is 7"),
        "something unknown to track": (f"{DIGITS} track=weather", "track is 'weather'"),
        "a start that is not there": (f"{DIGITS} model=null init_from=nowhere", "the model is nowhere"),
        "a start that has not finished": (f"{DIGITS} model=null init_from=unfinished", "unfinished has not finished"),
        "a start without weights": (f"{DIGITS} model=null init_from=image-weightless", "image-weightless"),
        "a start of another kind": (f"{DIGITS} model=null init_from=language", "language"),
        "a start from pickled weights": (f"{DIGITS} model=null init_from={DEIT}@weights.pth", "weights.pth"),
        "a start from damaged weights": (f"{DIGITS} model=null init_from={DEIT}@cut.safetensors", "cut.safetensors"),
        "texts that are not there": (f"{WORDS} data.source=/nowhere", "there is nothing at /nowhere"),
        "pictures in the place of texts": (f"{WORDS} data.source=pictures", "pictures holds no parquet"),
        "an unknown column of texts": (f"{WORDS} data.text=weather", "data.text is 'weather'"),
        "a tokenizer that is not there": (f"{WORDS} data.tokenizer=nowhere", "nowhere"),
        "a damaged tokenizer": (f"{WORDS} data.tokenizer=language-badwords", "language-badwords/tokenizer.json"),
        "a vocabulary of no words": (f"{WORDS} data.vocabulary=0", "data.vocabulary is 0"),
        "a vocabulary of one word": (f"{WORDS} data.vocabulary=1", "data.vocabulary"),
        "words that never come so often": (f"{WORDS} data.min_count=99999", "99999"),
        "a context of nothing": (f"{WORDS} model.options.context=0", "context is 0"),
        "a context longer than the text": (f"{WORDS} model.options.context=9999", "9999"),
        "a model of images for texts": (f"{WORDS} model.name=symvit", "there is no language model symvit"),
        "smoothing of a language model": (f"{WORDS} training.smoothing=0.1", "training.smoothing"),
        "classes that are texts": (f"{TELL} data.label=sentence", "data.label is 'sentence'"),
        "texts without classes": (f"{TELL} data.source=lines data.text=text", "no column holds the label"),
        "a classifier of texts from images": (f"{TELL} init_from=image", "image holds another kind of model"),
        "a classifier of texts from nothing": (f"{TELL} init_from=null model.name=x", "init_from is missing"),
        "a test split that is not there": (f"{TELL} data.test=weather", "has no split 'weather'"),
        "--out is a file": (f"{DIGITS} --out file.txt", "file.txt"),
        "--out is below a file": (f"{DIGITS} --out file.txt/run", "file.txt/run"),
        "--out is below a file in other letters": (f"{DIGITS} --out 'käse 1.yaml/ö'", "käse 1.yaml/ö"),
        "--out cannot be made": (f"{DIGITS} --out /proc/run", "/proc/run"),
        "--out loops in the file system": (f"{DIGITS} --out loop", "loop"),
        "--out has no name": (f"{DIGITS} --out ''", "--out is ''"),
        "--out holds an evaluation": (f"{DIGITS} --out evaluation", "evaluation holds an evaluation"),
        "--out holds an analysis": (f"{DIGITS} --out analysis", "analysis holds an analysis"),
        "--out holds a demo": (f"{DIGITS} --out demo", "demo holds a demo"),
        "--out holds a model": (f"{DIGITS} --out image", "image holds a model"),
        "--out holds a run already": (f"{DIGITS} --out run", "there is already a run in run"),
        "a run again without --resume": ("run", "there is already a run in run"),
        "resumed as an evaluation": (f"{DIGITS} --resume --out evaluation", "evaluation holds an evaluation"),
        "resumed with another seed": ("unfinished seed=5 --resume", "was started with seed=0, not 5"),
        "resumed with another model": ("unfinished model.options.depth=3 --resume", "model.options.depth=1, not 3"),
        "resumed with other data": ("unfinished data.limit=64 --resume", "data.limit=128, not 64"),
        "resumed with fewer steps than were done": ("unfinished schedule.epochs=1 --resume", "has only 2"),
        "resumed from cut weights": ("unfinished-cutweights --resume", "unfinished-cutweights/checkpoints is damaged"),
        "resumed from a cut state": ("unfinished-cutstate --resume", "unfinished-cutstate/checkpoints is damaged"),
        "resumed from an empty state": ("unfinished-emptystate --resume", "unfinished-emptystate/checkpoints is dam"),
        "resumed from a list": ("unfinished-liststate --resume", "unfinished-liststate/checkpoints is damaged"),
        "resumed without a part": ("unfinished-lostpart --resume", "unfinished-lostpart/checkpoints is damaged"),
        "resumed from an incomplete state": ("unfinished-stepless --resume", "unfinished-stepless"),
        "resumed with a damaged log": ("unfinished-badlog --resume", "unfinished-badlog/metrics.jsonl is damaged"),
        "resumed with a log of lists": ("unfinished-listlog --resume", "unfinished-listlog/metrics.jsonl is damaged"),
    },
    "evaluate": {
        "no model": ("", "Missing argument"),
        "a model without a name": ("'' --data pictures", "the model is ''"),
        "a model that is not there": ("nowhere --data pictures", "the model is nowhere"),
        "a model in other letters": ("'Größe 1/ä' --data pictures", "the model is Größe 1/ä"),
        "a model with a line break": ("'no\nwhere' --data pictures", "where; expected"),
        "a model in brackets": ("'[red]it[/red]' --data pictures", "the model is [red]it[/red]"),
        "a model of a very long name": (f"{'x' * 300} --data pictures", "xxx"),
        "a model that loops in the file system": ("loop --data pictures", "the model is loop"),
        "a file in the place of a model": ("file.txt --data pictures", "the model is file.txt"),
        "weights in the place of a model": ("image/model.safetensors --data pictures", "image/model.safetensors"),
        "pickled weights in the place of a model": ("weights.pth --data pictures", "the model is weights.pth"),
        "pictures in the place of a model": ("pictures --data pictures", "the model is pictures"),
        "an evaluation in the place of a model": ("evaluation --data pictures", "the model is evaluation"),
        "a run that has not finished": ("unfinished", "--checkpoint last"),
        "an unknown checkpoint": ("unfinished --checkpoint first", "first"),
        "a checkpoint of a model of timm": (f"{DEIT} --data pictures --checkpoint last", "--checkpoint"),
        "an unknown model of timm": ("timm:no_such_model@image --data pictures", "there is no model no_such_model"),
        "a model of timm without a name": ("timm: --data pictures", "there is no model"),
        "pickled weights for a model of timm": (
            f"{DEIT}@weights.pth --data pictures", "the weights weights.pth are not a safetensors file"
        ),
        "cut weights for a model of timm": (f"{DEIT}@cut.safetensors --data pictures", "cut.safetensors"),
        "weights of another model of timm": (f"{DEIT}@image --data pictures", "deit_tiny_patch16_224"),
        "no weights for a model of timm": (f"{DEIT}@nowhere --data pictures", "nowhere"),
        "a folder that transformers cannot open": ("hf:pictures --data pictures", "hf:pictures cannot be opened"),
        "a path that transformers cannot open": ("hf:./nowhere --data pictures", "there is no such folder"),
        "transformers without a name": ("hf: --data pictures", "hf:"),
        "cut weights": ("image-cut --data pictures", "image-cut"),
        "no weights": ("image-weightless --data pictures", "image-weightless"),
        "no card": ("image-cardless --data pictures", "the model is image-cardless"),
        "an empty card": ("image-emptycard --data pictures", "image-emptycard"),
        "a card that is a list": ("image-listcard --data pictures", "image-listcard"),
        "a card of something else": ("image-othercard --data pictures", "image-othercard"),
        "a card of an unknown model": ("image-unknown --data pictures", "no_such_model"),
        "a card with a wrong option": ("image-args --data pictures", "image-args"),
        "a card with a list of options": ("image-argslist --data pictures", "image-argslist"),
        "a card of fewer layers than there are": ("image-shallow --data pictures", "image-shallow"),
        "cut weights of a language model": ("language-cut --data lines", "language-cut"),
        "no weights of a language model": ("language-weightless --data lines", "language-weightless"),
        "an empty card of a language model": ("language-emptycard --data lines", "language-emptycard"),
        "a card of a language model of wrong sizes": ("language-sizes --data lines", "vocab_size"),
        "a card of a language model that says 3": ("language-modelless --data lines", "language-modelless"),
        "no tokenizer": ("language-wordless --data lines", "language-wordless holds no tokenizer.json"),
        "a damaged tokenizer": ("language-badwords --data lines", "language-badwords/tokenizer.json"),
        "cut weights of a text classifier": ("classifier-cut --data classes", "classifier-cut"),
        "a text classifier without a reading": ("classifier-unread --data classes", "classifier-unread"),
        "an unknown suite": (f"{IMAGE} --suite weather", "there is no suite of image classifiers 'weather'"),
        "an unknown suite beside a known one": (f"{IMAGE} --suite clean,weather", "'weather'"),
        "a suite without a name": (f"{IMAGE} --suite ''", "no suite of image classifiers was named"),
        "a suite of commas": (f"{IMAGE} --suite ,,", "no suite of image classifiers was named"),
        "a suite of another kind": (f"{TEXT} --suite attacks", "there is no suite of language models 'attacks'"),
        "no data": ("image", "--data is missing"),
        "no texts": ("language", "--data is missing"),
        "data that are not there": ("image --data /nowhere", "there is nothing at /nowhere"),
        "data without a name": ("image --data ''", "--data is ''"),
        "data in other letters": ("image --data './Größe 1'", "there is nothing at ./Größe 1"),
        "data that are no table": ("image --data file.txt", "file.txt is a file but not parquet"),
        "data that are a picture": ("image --data frost/frost1.png", "frost/frost1.png is a file but not parquet"),
        "data that are damaged": ("image --data table.parquet", "table.parquet"),
        "data in an empty folder": ("image --data empty", "empty holds neither parquet nor images"),
        "a picture that is none": ("image --data torn", "cannot be read: not an image"),
        "pictures of other classes": ("image --data strange", "cats"),
        "texts in the place of pictures": ("image --data lines", "no column holds the image"),
        "pictures in the place of texts": ("language --data pictures", "pictures holds no parquet"),
        "texts that are damaged": ("language --data table.parquet", "table.parquet"),
        "texts without classes": ("classifier --data lines", "no column holds the label"),
        "an unknown split": (f"{IMAGE} --split weather", "has no split 'weather'"),
        "a split without a name": (f"{IMAGE} --split ''", "has no split ''"),
        "an unknown split of a run's own data": ("run --split weather", "has no split 'weather'"),
        "an unknown column": (f"{TEXT} --column weather", "--column is 'weather'"),
        "a column of something else": ("classifier --data classes --column label", "--column is 'label'"),
        "a label of something else": ("classifier --data classes --label sentence", "--label is 'sentence'"),
        "no examples": (f"{IMAGE} --limit 0", "'--limit'"),
        "fewer than no examples": (f"{IMAGE} --limit -3", "'--limit'"),
        "half an example": (f"{IMAGE} --limit 1.5", "'--limit'"),
        "examples in brackets": (f"{IMAGE} --limit '[bold]x'", "'--limit'"),
        "an empty number": (f"{IMAGE} --limit ''", "'--limit'"),
        "an empty batch": (f"{IMAGE} --batch-size 0", "'--batch-size'"),
        "a seed below 0": (f"{IMAGE} --seed -1", "'--seed'"),
        "RPC-Attention of no words": (f"{IMAGE} --robustify ''", "--robustify is ''"),
        "RPC-Attention that is no key": (f"{IMAGE} --robustify cleaned", "--robustify is 'cleaned'"),
        "RPC-Attention of no key": (f"{IMAGE} --robustify =3", "--robustify is '=3'"),
        "RPC-Attention of an unknown key": (f"{IMAGE} --robustify colour=3", "unknown key colour"),
        "RPC-Attention of an unknown preset": (f"{IMAGE} --robustify preset=best", "preset is 'best'"),
        "RPC-Attention of broken YAML": (f"{IMAGE} --robustify lam=[1", "'[1'"),
        "RPC-Attention with a λ below 0": (f"{IMAGE} --robustify lam=-1", "lam is -1"),
        "RPC-Attention with a λ that is no number": (f"{IMAGE} --robustify lam=.nan", "lam is nan"),
        "RPC-Attention without iterations": (f"{IMAGE} --robustify iterations=0", "iterations is 0"),
        "RPC-Attention in a layer that there is not": (f"{IMAGE} --robustify layers=[9]", "layer 9 was chosen"),
        "RPC-Attention in no layer": (f"{IMAGE} --robustify layers=[]", "no layer was chosen"),
        "an unknown attack": (f"{ATTACK} --attacks weather", "there is no attack 'weather'"),
        "an attack in other letters": (f"{ATTACK} --attacks 'größe 1'", "there is no attack 'größe 1'"),
        "an attack without a name": (f"{ATTACK} --attacks ''", "no attack was named"),
        "a budget of 0": (f"{ATTACK} --eps 0", "--eps is 0"),
        "a budget below 0": (f"{ATTACK} --eps -0.1", "--eps is -0.1"),
        "a budget that is no number": (f"{ATTACK} --eps nan", "--eps is nan"),
        "an infinite budget": (f"{ATTACK} --eps inf", "--eps is inf"),
        "a budget in words": (f"{ATTACK} --eps small", "--eps is small"),
        "a budget over 0": (f"{ATTACK} --eps 1/0", "--eps is 1/0"),
        "a budget beyond the image": (f"{ATTACK} --eps 8", "--eps is 8"),
        "a budget of nothing": (f"{ATTACK} --eps ''", "--eps is ''"),
        "a budget of too many digits": (f"{ATTACK} --eps 1e999", "--eps is 1e999"),
        "an ℓ2 budget that is no number": (f"{ATTACK} --attacks cw --eps-l2 nan", "--eps-l2 is nan"),
        "an ℓ2 budget for attacks of ℓ∞": (f"{ATTACK} --attacks fgsm --eps-l2 0.5", "--eps-l2"),
        "no steps": (f"{ATTACK} --steps 0", "--steps is '0'"),
        "steps in words": (f"{ATTACK} --steps many", "--steps is 'many'"),
        "no targets": (f"{ATTACK} --targets 0", "--targets is '0'"),
        "too few samples": (f"{ATTACK} --samples 1", "--samples is '1'"),
        "an unknown protocol": (f"{ATTACK} --protocol mine", "--protocol is 'mine'"),
        "a protocol that an attack does not have": (
            f"{ATTACK} --attacks autoattack --protocol authors", "autoattack works on images in [0, 1]"),
        "unknown gradients": (f"{ATTACK} --gradients weather", "there is no source of gradients 'weather'"),
        "gradients of a model without RPC-Attention": (f"{ATTACK} --gradients straight", "--gradients straight"),
        "transfer from nowhere": (f"{ATTACK} --gradients transfer", "--gradients transfer and --source"),
        "a source that is not used": (f"{ATTACK} --source rpc", "--gradients transfer and --source"),
        "a source that is not there": (f"{ATTACK} --gradients transfer --source nowhere", "the model is nowhere"),
        "a source that has not finished": (f"{ATTACK} --gradients transfer --source unfinished", "unfinished has not"),
        "a source of another kind": (f"{ATTACK} --gradients transfer --source language", "language"),
        "a source of another size": (f"{ATTACK} --gradients transfer --source run", "--source"),
        "RPC-Attention for no source": (f"{ATTACK} --source-robustify preset=paper", "--source-robustify"),
        "an unknown corruption": (f"{CORRUPT} --corruptions weather", "there is no corruption 'weather'"),
        "a corruption without a name": (f"{CORRUPT} --corruptions ''", "no corruption was named"),
        "a severity of 6": (f"{CORRUPT} --severities 6", "there is no severity '6'"),
        "a severity of 0": (f"{CORRUPT} --severities 0", "there is no severity '0'"),
        "a severity in words": (f"{CORRUPT} --severities high", "there is no severity 'high'"),
        "frost from nowhere": (f"{CORRUPT} --corruptions frost --frost-dir nowhere", "nowhere holds no pictures"),
        "frost from a file": (f"{CORRUPT} --corruptions frost --frost-dir file.txt", "file.txt holds no pictures"),
        "frost that is no picture": (f"{CORRUPT} --corruptions frost --frost-dir frost", "frost/frost1.png"),
        "frost for another corruption": (f"{CORRUPT} --corruptions fog --frost-dir pictures", "--frost-dir"),
        "ImageNet-C for a model of four classes": (f"{CORRUPT} --imagenet-c pictures", "the model has 4 classes"),
        "ImageNet-A from nowhere": (f"{IMAGE} --suite ood --ood nowhere", "nowhere holds none of imagenet-a"),
        "ImageNet-A for a model of four classes": (f"{IMAGE} --suite ood --ood sets", "the model has 4 classes"),
        "texts' options for pictures": (f"{IMAGE} --column text", "--column is an option of language models"),
        "pictures' options for texts": (f"{TEXT} --eps 0.1", "--eps is an option of image classifiers"),
        "options of a suite that was not asked for": (f"{IMAGE} --eps 0.1", "--eps is an option of --suite attacks"),
        "corruptions among attacks": (f"{ATTACK} --severities 1", "--severities is an option of --suite corruptions"),
        "swapped words in clean ones": (f"{TEXT} --swap-rate 0.1", "--swap-rate is an option of --suite word_swap"),
        "classes of a language model": (f"{TEXT} --label label", "--label is an option of text classifiers"),
        "a stride of 0": (f"{TEXT} --stride 0", "--stride is '0'"),
        "a stride beyond the context": (f"{TEXT} --stride 99", "the stride is 99"),
        "a stride in words": (f"{TEXT} --stride far", "--stride is 'far'"),
        "a stride of segments": (f"{TEXT} --protocol segments --stride 2", "segments have no stride"),
        "no swapped words": (f"{SWAP} --swap-rate 0", "--swap-rate is '0'"),
        "more swapped words than words": (f"{SWAP} --swap-rate 2", "--swap-rate is '2'"),
        "a swap rate that is no number": (f"{SWAP} --swap-rate nan", "--swap-rate is 'nan'"),
        "words swapped elsewhere": (f"{SWAP} --swap targets", "--swap is 'targets'"),
        "against nothing": (f"{IMAGE} --against nowhere", "nowhere holds no evaluation"),
        "against a file": (f"{IMAGE} --against file.txt", "file.txt holds no evaluation"),
        "against a run": (f"{IMAGE} --against run", "run holds no evaluation"),
        "against an analysis": (f"{IMAGE} --against analysis", "analysis holds no evaluation"),
        "against other examples": (
            f"{IMAGE} --limit 8 --against fewer --out evaluation", "no comparable case in common"
        ),
        "against itself": (f"{IMAGE} --limit 8 --against evaluation --out evaluation", "--against"),
        "against cut settings": (f"{IMAGE} --against evaluation-cutsettings", "evaluation-cutsettings/evaluation.json"),
        "against settings of no model": (
            f"{IMAGE} --limit 8 --out evaluation --against evaluation-nameless", "evaluation-nameless/evaluation.json"),
        "against damaged outcomes": (
            f"{IMAGE} --limit 8 --out evaluation --against evaluation-noline", "evaluation-noline/outcomes-0.jsonl"),
        "perplexities against each other": (f"{TEXT} --against evaluation", "--against compares examples one by one"),
        "--out is a file": (f"{IMAGE} --out file.txt", "file.txt"),
        "--out is below a file": (f"{IMAGE} --out file.txt/e", "file.txt/e"),
        "--out cannot be made": (f"{IMAGE} --out /proc/evaluation", "/proc/evaluation"),
        "--out has no name": (f"{IMAGE} --out ''", "--out is ''"),
        "--out holds a run": (f"{IMAGE} --out run", "run holds a training run"),
        "--out holds an analysis": (f"{IMAGE} --out analysis", "analysis holds an analysis"),
        "--out holds a demo": (f"{IMAGE} --out demo", "demo holds a demo"),
        "--out holds the model": (f"{IMAGE} --out image", "image holds a model"),
        "--out holds another model's": ("rpc --data pictures --out evaluation", "evaluation holds an evaluation with"),
        "--out holds other batches": (f"{IMAGE} --batch-size 3 --out evaluation", "--batch-size 50, not 3"),
        "--out holds cut settings": (
            f"{IMAGE} --out evaluation-cutsettings", "evaluation-cutsettings/evaluation.json is damaged"),
        "--out holds empty settings": (
            f"{IMAGE} --out evaluation-emptysettings", "evaluation-emptysettings/evaluation.json is damaged"),
        "--out holds a list of settings": (
            f"{IMAGE} --out evaluation-listsettings", "evaluation-listsettings/evaluation.json is damaged"),
        "--out holds damaged records": (
            f"{IMAGE} --limit 8 --out evaluation-badrecords", "evaluation-badrecords/records.jsonl is damaged"),
        "--out holds a list of records": (
            f"{IMAGE} --limit 8 --out evaluation-listrecords", "evaluation-listrecords/records.jsonl is damaged"),
        **{
            f"--out holds outcomes with {what}": (
                f"{IMAGE} --limit 8 --out evaluation-{how}", f"evaluation-{how}/outcomes-0.jsonl is damaged")
            for how, what in {
                "noline": "a line that is no JSON", "listline": "a line that is a list", "caseless": "no description",
                "listcase": "a list for a case", "numbercase": "a number for a case", "sizeless": "a case of no size",
                "batchword": "a word for a batch", "timeless": "no time", "indexword": "a word for examples",
                "shortcolumn": "a column cut short", "columnless": "a number for a column",
            }.items()
        },
    },
    "analyze": {
        "no model": ("", "Missing argument"),
        "a model that is not there": ("nowhere --data pictures", "the model is nowhere"),
        "a run that has not finished": ("unfinished", "--checkpoint last"),
        "an unknown checkpoint": ("unfinished --checkpoint first", "first"),
        "a checkpoint of a model of timm": (f"{DEIT} --data pictures --checkpoint last", "--checkpoint"),
        "cut weights": ("image-cut --data pictures", "image-cut"),
        "pickled weights for a model of timm": (
            f"{DEIT}@weights.pth --data pictures", "the weights weights.pth are not a safetensors file"
        ),
        "a damaged tokenizer": ("language-badwords --data lines --prefixes 4", "language-badwords/tokenizer.json"),
        "no data": ("image", "--data is missing"),
        "data that are not there": ("image --data /nowhere", "there is nothing at /nowhere"),
        "data that are damaged": ("image --data table.parquet", "table.parquet"),
        "a picture that is none": ("image --data torn", "cannot be read: not an image"),
        "an unknown split": (f"{IMAGE} --split weather", "has no split 'weather'"),
        "an unknown column": (f"{TEXT} --column weather", "--column is 'weather'"),
        "no pictures": (f"{IMAGE} --images 0", "'--images'"),
        "texts in words": (f"{TEXT} --texts many", "'--texts'"),
        "an empty batch": (f"{IMAGE} --batch-size 0", "'--batch-size'"),
        "a seed below 0": (f"{IMAGE} --seed -1", "'--seed'"),
        "prefixes in words": (f"{TEXT} --prefixes short", "--prefixes is short"),
        "a prefix of one token": (f"{TEXT} --prefixes 4,1", "--prefixes is 4,1"),
        "a prefix below 0": (f"{TEXT} --prefixes -4", "--prefixes is -4"),
        "a prefix that is no number": (f"{TEXT} --prefixes nan", "--prefixes is nan"),
        "a prefix longer than any text": (f"{TEXT} --prefixes 99", "99 tokens that --prefixes asks for"),
        "no prefix of a causal model": (TEXT, "is causal"),
        "prefixes of pictures": (f"{IMAGE} --prefixes 4", "without --prefixes"),
        "a pack of 0": (f"{TEXT} --pack 0", "--pack is '0'"),
        "a pack of one token": (f"{TEXT} --prefixes 4 --pack 1", "--pack is 1"),
        "a pack longer than the context": (f"{TEXT} --prefixes 4 --pack 999", "--pack is 999"),
        "a pack of pictures": (f"{IMAGE} --pack 4", "--pack is an option of language models"),
        "an option of evaluate": (f"{IMAGE} --suite clean", "No such option: --suite"),
        "RPC-Attention of no words": (f"{IMAGE} --robustify ''", "--robustify is ''"),
        "RPC-Attention of an unknown preset": (f"{IMAGE} --robustify preset=best", "preset is 'best'"),
        "RPC-Attention in a layer that there is not": (f"{IMAGE} --robustify layers=[9]", "layer 9 was chosen"),
        "--out is a file": (f"{IMAGE} --out file.txt", "file.txt"),
        "--out is below a file": (f"{IMAGE} --out file.txt/a", "file.txt/a"),
        "--out cannot be made": (f"{IMAGE} --out /proc/analysis", "/proc/analysis"),
        "--out holds a run": (f"{IMAGE} --out run", "run holds a training run"),
        "--out holds an evaluation": (f"{IMAGE} --out evaluation", "evaluation holds an evaluation"),
        "--out holds a demo": (f"{IMAGE} --out demo", "demo holds a demo"),
        "--out holds the model": (f"{IMAGE} --out image", "image holds a model"),
        "--out holds another seed": (f"{IMAGE} --images 2 --seed 3 --out analysis", "an analysis with seed 0, not 3"),
        "--out holds another model's": ("rpc --data pictures --images 2 --out analysis", "an analysis with model"),
        "--out holds cut settings": (f"{IMAGE} --out analysis-cutsettings", "analysis-cutsettings/analysis.json"),
        "--out holds a list of settings": (f"{IMAGE} --out analysis-listsettings", "analysis-listsettings/analysis.js"),
    },
    "generate": {
        "no model": ("", "Missing argument"),
        "no prompt": ("language", "Missing argument"),
        "an empty prompt": ("language ''", "the prompt is ''"),
        "a prompt of spaces": ("language '  '", "the prompt is '  '"),
        "a prompt that is not UTF-8": ("language 'A \udce4'", "the prompt is not UTF-8"),
        "a prompt and more": (f"{SAY} stood", "(stood)"),
        "a model that is not there": ("nowhere A", "the model is nowhere"),
        "a model without a name": ("'' A", "the model is ''"),
        "a model in other letters": ("'Größe 1' A", "the model is Größe 1"),
        "a file in the place of a model": ("file.txt A", "the model is file.txt"),
        "a model of images": ("image A", "image holds another kind of model"),
        "a classifier of texts": ("classifier A", "classifier holds a text classifier"),
        "a model of timm": (f"{DEIT} A", "deit_tiny_patch16_224"),
        "a model of transformers": ("hf:nowhere A", "nowhere"),
        "a run that has not finished": ("unfinished A", "unfinished has not finished"),
        "cut weights": ("language-cut A", "language-cut"),
        "no weights": ("language-weightless A", "language-weightless holds no model.safetensors"),
        "an empty card": ("language-emptycard A", "language-emptycard"),
        "a card of wrong sizes": ("language-sizes A", "vocab_size"),
        "no tokenizer": ("language-wordless A", "language-wordless holds no tokenizer.json"),
        "a damaged tokenizer": ("language-badwords A", "language-badwords/tokenizer.json"),
        "weights that are no numbers": ("language-nan A", "holds NaN or infinity"),
        "no tokens": (f"{SAY} --tokens 0", "'--tokens'"),
        "tokens in words": (f"{SAY} --tokens many", "'--tokens'"),
        "a temperature below 0": (f"{SAY} --temperature -1", "temperature is -1"),
        "a temperature that is no number": (f"{SAY} --temperature nan", "temperature is nan"),
        "an infinite temperature": (f"{SAY} --temperature inf", "temperature is inf"),
        "a temperature in words": (f"{SAY} --temperature warm", "'--temperature'"),
        "no probability": (f"{SAY} --top-p 0", "top_p is 0"),
        "a probability beyond 1": (f"{SAY} --top-p 1.5", "top_p is 1.5"),
        "a probability that is no number": (f"{SAY} --top-p nan", "top_p is nan"),
        "drawing without drawing": (f"{SAY} --greedy --temperature 2", "--greedy"),
        "a seed below 0": (f"{SAY} --seed -1", "'--seed'"),
        "RPC-Attention of no words": (f"{SAY} --robustify ''", "--robustify is ''"),
        "RPC-Attention in a layer that there is not": (f"{SAY} --robustify layers=[9]", "layer 9 was chosen"),
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        pytest.param(f"{command} {words}", fragment, id=f"{command}: {name}".removeprefix(": "))
        for command, cases in CASES.items()
        for name, (words, fragment) in cases.items()
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_touched(here, words, fragment):
    before = snapshot(here)
    done = invoke(shlex.split(words))
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (1, 2)
    assert fragment in sentence(done)
    assert done.stdout == ""
    assert changes(before, snapshot(here)) == {}


@pytest.fixture
def here(world, monkeypatch):
    """The prepared folder as working directory, restored after each test."""
    monkeypatch.chdir(world)
    before = snapshot(world)
    yield world
    if snapshot(world) != before:
        shutil.rmtree(world)
        shutil.copytree(world.with_name("kept"), world, symlinks=True)


def invoke(words):
    """Run a command in a wide terminal, so that sentences are not wrapped."""
    return CliRunner().invoke(app, words, env={"COLUMNS": "1000"})


def sentence(done):
    """The error on stderr: one line `principal COMMAND: …`, or typer's box below the usage.

    A resumed training prints its run first.
    """
    assert "Traceback" not in done.stderr
    told = done.stderr.strip().splitlines()
    if done.exit_code == 2:
        told = [line.strip("│ ") for line in told if line.startswith("│")]
    else:
        told = [line for line in told if not line.endswith("trying the checkpoint before it")
                and not line.startswith("continuing ")]  # fmt: skip
        assert told[0].startswith("principal "), done.stderr
    assert len(told) == 1, done.stderr
    return told[0]


def snapshot(root):
    """Contents of all files below a folder, and the names of its folders."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        for path in root.rglob("*")
    }


def changes(before, after):
    return {name: (before.get(name), after.get(name)) for name in {*before, *after}
            if before.get(name) != after.get(name)}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory, folder, trained, pursuing, lines, classes, language, classifier):
    """A folder with all files named by the commands, which must not change it."""
    root = tmp_path_factory.mktemp("bad inputs") / "größer, with spaces"
    whole = dict(
        pictures=folder, image=trained, rpc=pursuing, lines=lines, classes=classes, language=language,
        classifier=classifier,
    )  # fmt: skip
    for name, path in whole.items():
        shutil.copytree(path, root / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        silent = Progress(console=Console(file=io.StringIO()))
        train(read_recipe("digits/symvit", SHORT), Path("run"), progress=silent, tensorboard=False)
        for words in (
            f"evaluate {IMAGE} --limit 8 --out evaluation", f"evaluate {IMAGE} --limit 4 --out fewer",
            f"analyze {IMAGE} --images 2 --out analysis",
        ):  # fmt: skip
            done = invoke(shlex.split(words))
            assert done.exit_code == 0, done.output
    make_unfit_things(root)
    make_damaged_copies(root)
    shutil.copytree(root, root.with_name("kept"), symlinks=True)
    return root


def make_unfit_things(root):
    """Files and folders of a wrong type for the commands."""
    for name in ("empty", "demo", "frost", "strange/val/cats", "sets/imagenet-a"):
        (root / name).mkdir(parents=True)
    for name, text in {
        "demo/demo.json": '{"seeds": 1, "models": []}', "file.txt": "words", "frost/frost1.png": "no picture",
        "table.parquet": "PAR1 is not enough", "broken.yaml": "data: {source: digits", "käse 1.yaml": "seed: [1",
        "nothing.yaml": "", "list.yaml": "- 1", "itself.yaml": "base: itself", "orphan.yaml": "base: no_such_base",
        "numbered.yaml": "base: 3", "other.yaml": "task: weather", "unknown.yaml": "base: digits/symvit\nwheather: 1",
    }.items():  # fmt: skip
        (root / name).write_text(text)
    (root / "bytes.yaml").write_bytes(b"name: \xff\xfe")
    (root / "loop").symlink_to("loop")
    torch.save({"weight": torch.zeros(2)}, root / "weights.pth")
    (root / "cut.safetensors").write_bytes((root / "image" / "model.safetensors").read_bytes()[:300])
    picture = next((root / "pictures").rglob("*.png"))
    shutil.copy(picture, root / "strange" / "val" / "cats")
    shutil.copytree(root / "pictures", root / "torn")
    for torn in (root / "torn").rglob("*.png"):
        torn.write_text("no picture")
    shutil.copytree(root / "run", root / "unfinished")
    for name in ("config.json", "model.safetensors", "records.jsonl"):
        (root / "unfinished" / name).unlink()


def make_damaged_copies(root):
    """Copies NAME-HOW of NAME, with one file changed."""
    card, weights, words, state = "config.json", "model.safetensors", "tokenizer.json", "checkpoints/*/state.json"
    for name in ("image", "language", "classifier"):
        damage(root, f"{name}-cut", weights, half)
        damage(root, f"{name}-weightless", weights, None)
        damage(root, f"{name}-cardless", card, None)
        damage(root, f"{name}-emptycard", card, "")
        damage(root, f"{name}-listcard", card, "[1]")
        damage(root, f"{name}-othercard", card, edit(architecture="weather.Forecast"))
    damage(root, "image-unknown", card, edit(architecture="no_such_model"))
    damage(root, "image-args", card, edit(model_args={"depth": "deep"}))
    damage(root, "image-argslist", card, edit(model_args=[1]))
    shallow = json.loads((root / "image" / card).read_text())["model_args"] | {"depth": 1}
    damage(root, "image-shallow", card, edit(model_args=shallow))
    damage(root, "language-sizes", card, edit(model={"vocab_size": -3}))
    damage(root, "language-modelless", card, edit(model=3))
    damage(root, "language-wordless", words, None)
    damage(root, "language-badwords", words, half)
    damage(root, "language-nan", weights, lambda before: before[:-4] + torch.tensor(torch.nan).numpy().tobytes())
    damage(root, "classifier-unread", card, edit(reading=3))
    damage(root, "run-badrecipe", "recipe.yaml", "task: [images")
    damage(root, "unfinished-cutweights", "checkpoints/*/model.safetensors", half)
    damage(root, "unfinished-lostpart", "checkpoints/*/optimizer.safetensors", None)
    damage(root, "unfinished-cutstate", state, half)
    damage(root, "unfinished-emptystate", state, "")
    damage(root, "unfinished-liststate", state, "[1]")
    damage(root, "unfinished-stepless", state, edit(step=None))
    damage(root, "unfinished-badlog", "metrics.jsonl", "what is this\n")
    damage(root, "unfinished-listlog", "metrics.jsonl", "[1]\n")
    for name, settings in (("evaluation", "evaluation.json"), ("analysis", "analysis.json")):
        damage(root, f"{name}-cutsettings", settings, half)
        damage(root, f"{name}-emptysettings", settings, "")
        damage(root, f"{name}-listsettings", settings, "[1]")
    damage(root, "evaluation-nameless", "evaluation.json", "{}")
    damage(root, "evaluation-badrecords", "records.jsonl", "what is this\n")
    damage(root, "evaluation-listrecords", "records.jsonl", "[1]\n")
    damage(root, "evaluation-noline", "outcomes-0.jsonl", "what is this\n")
    damage(root, "evaluation-listline", "outcomes-0.jsonl", "[1]\n")
    for how, wrong in {
        "caseless": {"case": "clean"}, "listcase": {"case": [1]}, "numbercase": {"case": "3"},
        "sizeless": {"case": '{"suite": "clean", "case": "clean"}'}, "batchword": {"batch": "first"},
        "timeless": {"seconds": None}, "indexword": {"index": "none"}, "shortcolumn": {"label": [0, 1]},
        "columnless": {"predicted": 3},
    }.items():  # fmt: skip
        damage(root, f"evaluation-{how}", "outcomes-0.jsonl", edit(**wrong))


def damage(root, name, pattern, content):
    """`content` is the new content of the files: a text, a function of the old bytes, or None to remove them."""
    shutil.copytree(root / name.partition("-")[0], root / name)
    files = list((root / name).glob(pattern))
    assert files
    for file in files:
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content.encode() if isinstance(content, str) else content(file.read_bytes()))


def half(before):
    return before[: len(before) // 2]


def edit(**keys):
    """Function that sets these keys in a file with one JSON object."""
    return lambda before: (json.dumps(json.loads(before) | keys) + "\n").encode()
