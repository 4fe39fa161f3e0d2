"""Vision: the paper's models on timm, and images from wherever they are kept."""
