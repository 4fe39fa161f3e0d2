"""Version of the package, read by the build and by `principal --version`."""

__version__ = "0.1.0"
