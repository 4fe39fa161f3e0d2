"""Help past installs that are not whole: what is mended or registered when another library is imported."""
