"""Tables of examples, shared by all tasks: sources, splits, classes, limits."""
