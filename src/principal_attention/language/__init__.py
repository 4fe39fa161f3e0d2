"""Text: where it comes from, and the transformers that read it."""
