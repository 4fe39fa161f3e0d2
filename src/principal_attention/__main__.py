"""`python -m principal_attention`, for launchers such as torchrun that start a module."""

from .cli import main

main()
