"""What the tests train, and on what."""

from principal_attention.vision.data import open_splits

# A run of seconds that uses everything a step can draw random numbers for.
QUICK = (
    "model.options.depth=2", "model.options.embed_dim=24", "model.options.drop_path_rate=0.2", "augment.flip=0.5",
    "augment.mixup=0.8", "augment.cutmix=1.0", "augment.erasing=0.25", "data.limit=256", "schedule.epochs=3",
    "schedule.warmup_epochs=1", "training.ema=0.9", "training.log_every=1",
)  # fmt: skip


def class_folders(folder, count):
    """The first digits as files, train/3/17.png and val/3/17.png; returns the folder."""
    rows = open_splits("digits")[0].rows
    for split in ("train", "val"):
        for i in range(count):
            file = folder / split / str(rows[i]["label"]) / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(rows[i]["image"]["bytes"])
    return folder
