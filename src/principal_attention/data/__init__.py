"""Tables of examples from anywhere, and what every kind of task asks of them: splits, classes, limits."""
