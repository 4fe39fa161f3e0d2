"""A model becomes numbers, and numbers become records."""
