"""What the tests train."""

# A run of seconds that uses everything a step can draw random numbers for.
QUICK = (
    "model.options.depth=2", "model.options.embed_dim=24", "model.options.drop_path_rate=0.2", "augment.flip=0.5",
    "augment.mixup=0.8", "augment.cutmix=1.0", "augment.erasing=0.25", "data.limit=256", "schedule.epochs=3",
    "schedule.warmup_epochs=1", "training.ema=0.9", "training.log_every=1",
)  # fmt: skip
