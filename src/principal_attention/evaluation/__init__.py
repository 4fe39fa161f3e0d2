"""Evaluate models with suites: measurements of every example, and records made from them."""
