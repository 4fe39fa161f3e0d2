"""Parameters of each corruption at five severities, as published for three sizes of images.

224: ImageNet-C in the version of `imagecorruptions` (Michaelis et al., 2019), which also supports other large sizes. It
differs from the original code in elastic_transform, which there includes a random affine map. 64 and 32:
Tiny-ImageNet-C and CIFAR-10-C in the authors' code (Hendrycks and Dietterich, 2019).
"""

from typing import Any

SIDES = (32, 64, 224)  # published sizes of images, in pixels

_STEPS = 0.01, 0.01, 0.02, 0.02, 0.03
_ZOOMS = {
    224: [(end, step) for end, step in zip((1.11, 1.16, 1.21, 1.26, 1.31), _STEPS, strict=True)],
    64: [(end, 0.01) for end in (1.06, 1.11, 1.16, 1.21, 1.26)],
    32: [(end, 0.01) for end in (1.06, 1.11, 1.16, 1.21, 1.26)],
}

PARAMETERS: dict[str, dict[int, list[Any]]] = {
    # standard deviation
    "gaussian_noise": {
        224: [0.08, 0.12, 0.18, 0.26, 0.38],
        64: [0.04, 0.08, 0.12, 0.15, 0.18],
        32: [0.04, 0.06, 0.08, 0.09, 0.10],
    },
    # photons at full brightness
    "shot_noise": {
        224: [60, 25, 12, 5, 3],
        64: [250, 100, 50, 30, 15],
        32: [500, 250, 100, 75, 50],
    },
    # share of the values that are set to 0 or 1
    "impulse_noise": {
        224: [0.03, 0.06, 0.09, 0.17, 0.27],
        64: [0.01, 0.02, 0.05, 0.08, 0.14],
        32: [0.01, 0.02, 0.03, 0.05, 0.07],
    },
    # radius of the disk, standard deviation of the Gaussian that softens its edge
    "defocus_blur": {
        224: [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
        64: [(0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)],
        32: [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    },
    # standard deviation of the blur, largest displacement of a pixel, number of repetitions
    "glass_blur": {
        224: [(0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
        64: [(0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)],
        32: [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    },
    # radius and standard deviation of the kernel
    "motion_blur": {
        224: [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
        64: [(10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)],
        32: [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    },
    # end and step of the zoom factors, which start at 1
    "zoom_blur": _ZOOMS,
    # flakes: mean, standard deviation, zoom, threshold, radius and standard deviation of the motion blur; weight of the
    # image against its whitened copy
    "snow": {
        224: [
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ],
        64: [
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ],
        32: [
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ],
    },
    # weight of the image, weight of the texture, scale of the texture (None: see `Textures.scaled`)
    "frost": {
        224: [(1, 0.4, None), (0.8, 0.6, None), (0.7, 0.7, None), (0.65, 0.7, None), (0.6, 0.75, None)],
        64: [(1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)],
        32: [(1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)],
    },
    # thickness, decay of the clouds' roughness from scale to scale
    "fog": {
        224: [(1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)],
        64: [(0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)],
        32: [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
    },
    # increase of the value V of HSV
    "brightness": {
        224: [0.1, 0.2, 0.3, 0.4, 0.5],
        64: [0.1, 0.2, 0.3, 0.4, 0.5],
        32: [0.05, 0.1, 0.15, 0.2, 0.3],
    },
    # factor of the deviation from the mean
    "contrast": {
        224: [0.4, 0.3, 0.2, 0.1, 0.05],
        64: [0.4, 0.3, 0.2, 0.1, 0.05],
        32: [0.75, 0.5, 0.4, 0.3, 0.15],
    },
    # displacement, standard deviation of its smoothing, displacement of the corners; all divided by the height
    "elastic_transform": {
        224: [(250 * strength * 0.005, 0.01, 0.0) for strength in (0.05, 0.065, 0.085, 0.1, 0.12)],
        64: [(0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)],
        32: [(0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)],
    },
    # scale factor of the resolution
    "pixelate": {
        224: [0.6, 0.5, 0.4, 0.3, 0.25],
        64: [0.9, 0.8, 0.7, 0.6, 0.5],
        32: [0.95, 0.9, 0.85, 0.75, 0.65],
    },
    # JPEG quality
    "jpeg_compression": {
        224: [25, 18, 15, 10, 7],
        64: [65, 58, 50, 40, 25],
        32: [80, 65, 58, 50, 40],
    },
}
CORRUPTIONS = {  # in the order of the published tables
    "gaussian_noise": "Gaussian noise.",
    "shot_noise": "Poisson noise of few photons.",
    "impulse_noise": "Single values set to 0 or 1.",
    "defocus_blur": "Blur by a disk.",
    "glass_blur": "Pixels replaced by random neighbours, as behind frosted glass.",
    "motion_blur": "Blur along a random direction.",
    "zoom_blur": "Average over zoomed copies.",
    "snow": "Falling snow, blurred along its motion.",
    "frost": "Photographs of frost blended in.",
    "fog": "Fog from plasma fractals.",
    "brightness": "Higher value in HSV.",
    "contrast": "Lower contrast.",
    "elastic_transform": "Smooth random displacement of the pixels.",
    "pixelate": "Lower resolution, enlarged by box filtering.",
    "jpeg_compression": "JPEG at low quality.",
}


def strength_of(name: str, severity: int, side: int) -> Any:
    """Parameters for images with a shorter side of `side` pixels: those of the published size nearest in ratio."""
    nearest = min(SIDES, key=lambda published: max(side / published, published / side))
    return PARAMETERS[name][nearest][severity - 1]
