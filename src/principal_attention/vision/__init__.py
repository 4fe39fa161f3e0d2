"""Vision: the paper's models on timm, image data sets, corruptions and attacks."""
