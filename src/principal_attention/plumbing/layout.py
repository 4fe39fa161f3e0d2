"""Names of the files that commands write.

A run:          recipe.yaml  metrics.jsonl  records.jsonl  tensorboard/  checkpoints/  config.json  model.safetensors
                for texts also: tokenizer.json  data.sha256
An evaluation:  evaluation.json  outcomes-RANK.jsonl  records.jsonl  universal-SIDEpx-HASH.png
An analysis:    analysis.json  parts/  figures/  records.jsonl  index.html
A demo:         demo.json  MODEL-SEED/  records.jsonl  index.html
"""

CARD, WEIGHTS = "config.json", "model.safetensors"  # files of a model, in every folder that holds one
RECIPE, METRICS, CHECKPOINTS, TENSORBOARD, DIGEST = (
    "recipe.yaml", "metrics.jsonl", "checkpoints", "tensorboard", "data.sha256",
)  # fmt: skip
RECORDS = "records.jsonl"
EVALUATION, OUTCOMES = "evaluation.json", "outcomes-{}.jsonl"
PATCH = "universal-{}px-{}.png"  # universal patch: side, and hash of its settings
ANALYSIS, PARTS, FIGURES = "analysis.json", "parts", "figures"
DEMO = "demo.json"
PAGE = "index.html"
LOCK = ".lock"  # in every folder that a command writes to
