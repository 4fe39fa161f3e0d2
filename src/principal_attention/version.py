"""The version, where what is built and what is printed both find it."""

__version__ = "0.1.0"
