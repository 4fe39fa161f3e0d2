"""The fifteen corruptions compared with references in SciPy, PIL and plain loops."""

import io
import math

import numpy as np
import pytest
import torch
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_sample_images

from principal_attention.errors import InputError
from principal_attention.vision.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    Textures,
    blur,
    corrupt,
    digital,
    filters,
    made_textures,
    weather,
)
from principal_attention.vision.corruptions.draws import Draws
from principal_attention.vision.corruptions.frost import read_textures
from principal_attention.vision.corruptions.parameters import strength_of

DETERMINISTIC = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")


@pytest.fixture(scope="module")
def photographs():
    """Two photographs, (2, 3, 224, 224) in [0, 1]."""
    cut = [image[100:324, 200:424] for image in load_sample_images().images]
    return torch.from_numpy(np.stack(cut)).permute(0, 3, 1, 2).float() / 255


def sized(images, side):
    return torch.nn.functional.interpolate(images, size=(side, side), mode="area").mul(255).round().div(255)


def levels(images):
    """Convert to (batch, height, width, channels), 0 to 255."""
    return (images * 255).round().permute(0, 2, 3, 1).numpy()


def draws(count=2, name="fog", severity=3):
    return Draws(0, range(count), name, severity, torch.device("cpu"))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_is_what_libjpeg_makes_of_it(photographs, severity):
    quality = (25, 18, 15, 10, 7)[severity - 1]
    ours = levels(corrupt(photographs, "jpeg_compression", severity))
    for image, found in zip(levels(photographs).astype(np.uint8), ours, strict=True):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        theirs = np.asarray(Image.open(file)).astype(float)
        # libjpeg's integer transforms round about one coefficient in a hundred differently
        assert np.abs(found - theirs).mean() < 0.6


def test_jpeg_of_sizes_that_are_no_multiple_of_its_blocks(photographs):
    odd = photographs[:1, :, :101, :77]
    file = io.BytesIO()
    Image.fromarray(levels(odd)[0].astype(np.uint8)).save(file, "JPEG", quality=58)  # of 64×64 images
    theirs = np.asarray(Image.open(file)).astype(float)
    assert np.abs(levels(corrupt(odd, "jpeg_compression", 2))[0] - theirs).mean() < 0.8


@pytest.mark.parametrize(("side", "severity"), [(224, 1), (224, 3), (224, 5), (64, 1), (32, 4)])
def test_pixels_are_those_of_pil(photographs, side, severity):
    images = sized(photographs, side)
    few = int(side * strength_of("pixelate", severity, side))
    for image, found in zip(
        levels(images).astype(np.uint8), levels(corrupt(images, "pixelate", severity)), strict=True
    ):
        small = Image.fromarray(image).resize((few, few), Image.Resampling.BOX)
        theirs = np.asarray(small.resize((side, side), Image.Resampling.NEAREST)).astype(float)
        assert np.abs(found - theirs).max() <= 1  # PIL's weights have 22 bits
        assert np.abs(found - theirs).mean() < 0.01


@pytest.mark.parametrize("severity", SEVERITIES)
def test_zoom_blur_is_the_mean_of_scipys_zooms(photographs, severity):
    end, step = strength_of("zoom_blur", severity, 224)
    image = photographs[0].permute(1, 2, 0).numpy()
    factors = np.arange(1, end, step)
    total = image.copy()
    for factor in factors:
        side = math.ceil(224 / factor)
        top = (224 - side) // 2
        total += ndimage.zoom(image[top : top + side, top : top + side], (factor, factor, 1), order=1)[:224, :224]
    theirs = np.floor(total / (len(factors) + 1) * 255 + 1e-4)
    assert np.abs(levels(corrupt(photographs[:1], "zoom_blur", severity))[0] - theirs).mean() < 0.01


@pytest.mark.parametrize(("side", "severity"), [(224, 1), (224, 4), (224, 5), (64, 5), (32, 1)])
def test_defocus_is_a_correlation_with_a_disk(photographs, side, severity):
    images = sized(photographs, side)
    radius, softness = strength_of("defocus_blur", severity, side)
    reach = max(8, int(radius))
    line = np.arange(-reach, reach + 1)
    disk = (np.add.outer(line**2, line**2) <= radius**2).astype(float)
    kernel = ndimage.gaussian_filter(disk / disk.sum(), softness, mode="mirror", radius=1 if radius <= 8 else 2)
    ours = levels(corrupt(images, "defocus_blur", severity))
    for channel in range(3):
        theirs = np.floor(ndimage.correlate(images[0, channel].double().numpy(), kernel, mode="mirror") * 255 + 1e-4)
        assert np.abs(ours[0, ..., channel] - theirs).mean() < 0.01


def test_brightness_is_the_value_of_hsv_and_contrast_the_distance_from_the_mean(photographs):
    image = photographs.clone()
    image[0, :, :4] = 0.0  # black has no hue
    hsv = rgb_to_hsv(image[0].permute(1, 2, 0).double().numpy())
    hsv[..., 2] = np.clip(hsv[..., 2] + 0.3, 0, 1)
    theirs = np.floor(hsv_to_rgb(hsv) * 255 + 1e-4)
    assert np.abs(levels(corrupt(image, "brightness", 3))[0] - theirs).max() <= 1
    pixels = image[1].double().numpy()
    mean = pixels.mean((1, 2), keepdims=True)
    theirs = np.floor(((pixels - mean) * 0.2 + mean) * 255 + 1e-4).transpose(1, 2, 0)
    assert np.abs(levels(corrupt(image, "contrast", 3))[1] - theirs).max() <= 1


@pytest.mark.parametrize("border", ["nearest", "reflect"])
@pytest.mark.parametrize("deviation", [0.05, 0.7, 2.24, 19.2])
def test_the_gaussian_is_scipys(border, deviation):
    image = torch.rand(1, 1, 40, 56)
    theirs = ndimage.gaussian_filter(image[0, 0].double().numpy(), deviation, mode=border, truncate=3.0)
    ours = filters.gaussian(image, deviation, border=border, truncate=3.0)[0, 0]
    np.testing.assert_allclose(ours, theirs, atol=2e-6)  # float32 sums of up to 56 terms


@pytest.mark.parametrize(("twice", "mode"), [(True, "reflect"), (False, "mirror")])
def test_sampling_between_pixels_is_scipys(twice, mode):
    image = torch.rand(1, 2, 33, 35)
    down, across = torch.rand(1, 33, 35) * 60 - 12, torch.rand(1, 33, 35) * 60 - 12
    ours = digital._sample(image, across, down, twice=twice)
    for channel in range(2):
        theirs = ndimage.map_coordinates(
            image[0, channel].double().numpy(), [down[0].numpy(), across[0].numpy()], order=1, mode=mode
        )
        np.testing.assert_allclose(ours[0, channel], theirs, atol=2e-5)  # places in float32, up to 60 pixels away


def test_the_affine_map_takes_the_moved_corners_back():
    reach, side = 3.0, 32
    across, down = digital._affine(side, side, reach, draws())
    corners = np.array([[26, 26], [26, 6], [6, 6]], dtype=float)
    moved = corners + draws().uniform(3, 2, low=-reach, high=reach).numpy()
    for image in range(2):
        found = [
            [ndimage.map_coordinates(plane[image].double().numpy(), [[y], [x]], order=1)[0] for plane in (across, down)]
            for x, y in moved[image]
        ]
        np.testing.assert_allclose(found, corners, atol=1e-4)


def test_motion_is_a_sum_of_shifts_that_repeat_the_edge():
    images = torch.rand(3, 1, 40, 40)
    angles = torch.tensor([-45.0, 10.0, -100.0])
    ours = filters.motion(images, 6, 3.0, angles)
    weights = np.exp(-0.5 * (np.arange(13) / 3.0) ** 2)
    weights /= weights.sum()
    for image, found, angle in zip(images, ours, np.deg2rad(angles.numpy()), strict=True):
        total = np.zeros((40, 40))
        for i, weight in enumerate(weights):
            dy, dx = math.ceil(i * math.sin(angle) - 0.5), math.ceil(i * math.cos(angle) - 0.5)
            rows, columns = (np.clip(np.arange(40) + d, 0, 39) for d in (dy, dx))
            total += weight * image[0].numpy()[np.ix_(rows, columns)]
        np.testing.assert_allclose(found[0], total, atol=1e-6)


@pytest.mark.parametrize("reach", [1, 3])
def test_glass_takes_pixel_after_pixel(reach):
    images = torch.rand(2, 3, 36, 34)
    ours = blur._scatter(images, reach, draws())
    height, width = 36, 34
    rows, columns = range(reach + 1, height - reach + 1), range(reach + 1, width - reach + 1)
    offsets = draws().integers(-reach, reach, 2, len(rows), len(columns)).numpy()
    for image, moves, found in zip(images.numpy().copy(), offsets, ours, strict=True):
        for y in reversed(rows):
            for x in reversed(columns):
                dy, dx = moves[:, y - rows[0], x - columns[0]]
                image[:, y, x] = image[:, y + dy, x + dx]
        np.testing.assert_array_equal(found, image)


def test_clouds_are_diamond_square():
    side, decay = 32, 2.0
    ours = weather.plasma(side, decay, draws())
    random = draws()
    clouds, step, size = np.zeros((2, side, side)), side, 100.0
    while step >= 2:
        half = step // 2
        count = side // step
        for shift, neighbours in (
            ((half, half), ((-half, -half), (-half, half), (half, -half), (half, half))),
            ((0, half), ((-half, 0), (half, 0), (0, -half), (0, half))),
            ((half, 0), ((-half, 0), (half, 0), (0, -half), (0, half))),
        ):
            noise = random.uniform(count, count, low=-size, high=size).numpy()
            for i in range(count):
                for j in range(count):
                    y, x = i * step + shift[0], j * step + shift[1]
                    mean = sum(clouds[:, (y + dy) % side, (x + dx) % side] for dy, dx in neighbours) / 4
                    clouds[:, y, x] = mean + size * noise[:, i, j]
        step, size = half, size / decay
    clouds -= clouds.min((1, 2), keepdims=True)
    np.testing.assert_allclose(ours, clouds / clouds.max((1, 2), keepdims=True), atol=1e-6)


def test_noise_has_its_moments():
    """65,536 pixels of one grey level: standard error σ/256 of the mean, σ/360 of the deviation."""
    grey = torch.full((1, 1, 256, 256), 0.4)
    found = corrupt(grey, "gaussian_noise", 1) + 0.5 / 255  # half a level is cut off on average
    assert found.mean().item() == pytest.approx(0.4, abs=4 * 0.08 / 256)
    assert found.std().item() == pytest.approx(0.08, rel=0.02)
    found = corrupt(grey, "shot_noise", 1) + 0.5 / 255
    assert found.mean().item() == pytest.approx(0.4, abs=4 * math.sqrt(0.4 / 60) / 256 + 0.5 / 255)
    assert found.std().item() == pytest.approx(math.sqrt(0.4 / 60), rel=0.02)
    found = corrupt(grey, "impulse_noise", 5)
    for value in (0.0, 1.0):
        assert (found == value).float().mean().item() == pytest.approx(0.135, abs=4 * math.sqrt(0.135 / 65536))
    assert (found == 102 / 255).float().mean().item() == pytest.approx(0.73, abs=0.01)


def test_frost_is_a_piece_of_a_given_texture(tmp_path):
    ice = np.random.default_rng(0).integers(0, 256, (300, 320, 3), dtype=np.uint8)
    Image.fromarray(ice).save(tmp_path / "frost1.png")
    clear, icy, _ = strength_of("frost", 3, 224)
    found = corrupt(torch.full((1, 3, 224, 224), 0.2), "frost", 3, frost=tmp_path)[0] * 255
    scaled = read_textures(tmp_path).scaled(0, 224, 224, None) * 255
    assert scaled.shape == (3, 330, 352)  # 1.1 times what it was
    corners = scaled.unfold(1, 224, 1).unfold(2, 224, 1)[:, :, :, :5, :5]  # of every piece
    distance = (0.2 * 255 * clear + icy * corners - found[:, None, None, :5, :5]).amax((0, 3, 4))
    assert ((distance >= 0) & (distance <= 1)).sum() == 1  # less than a level is cut off, at one place only


def test_made_frost_looks_like_frost():
    textures = made_textures()
    assert len(textures) == 6
    means = [texture.mean().item() for texture in textures.pictures]
    assert 0.3 < min(means) < max(means) < 0.85  # those of ImageNet-C: 0.35 to 0.81
    assert all(0.05 < texture.mean(0).std() < 0.2 for texture in textures.pictures)
    assert made_textures() is textures


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_is_corrupted_the_same_in_every_batch(name, photographs):
    for side in (32, 64, 224):
        images = sized(photographs, side).repeat(2, 1, 1, 1)
        together = corrupt(images, name, 3, indices=[5, 9, 0, 7], seed=1)
        alone = torch.cat(
            [corrupt(images[i : i + 1], name, 3, indices=[index], seed=1) for i, index in enumerate([5, 9, 0, 7])]
        )
        assert together.equal(alone)
        if name not in DETERMINISTIC:
            assert not together[0].equal(together[2])  # the same picture under another index
            assert not together.equal(corrupt(images, name, 3, indices=[5, 9, 0, 7], seed=2))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [32, 45, 64, 112, 224, 300])
def test_every_size_gives_whole_levels_that_grow_with_the_severity(photographs, side, channels):
    images = sized(photographs, side)[:, :channels]
    before = images.clone()
    for name in CORRUPTIONS:
        changes = []
        for severity in (1, 5):
            found = corrupt(images, name, severity)
            assert found.shape == images.shape
            assert found.dtype == torch.float32
            torch.testing.assert_close(found * 255, (found * 255).round(), rtol=0, atol=1e-4)
            assert 0 <= found.min() <= found.max() <= 1
            changes.append((found - images).abs().mean().item())
        assert changes[0] > 0
        # frost depends on the texture drawn, and small elastic images trade one motion for another
        by_chance = name == "frost" or (name == "elastic_transform" and side < 120)
        assert changes[0] < changes[1] or by_chance, name
    assert images.equal(before)


def test_512_pixels_and_black_and_white_images():
    images = torch.stack([torch.zeros(3, 512, 512), torch.ones(3, 512, 512)])
    for name in CORRUPTIONS:
        assert corrupt(images, name, 5).isfinite().all()


@pytest.mark.parametrize(
    ("images", "name", "severity", "sentence"),
    [
        (
            torch.zeros(1, 3, 32, 32),
            "gausian_noise",
            1,
            "no corruption 'gausian_noise'; expected one of gaussian_noise",
        ),
        (torch.zeros(1, 3, 32, 32), "snow", 6, "severity is 6; expected 1, 2, 3, 4 or 5"),
        (torch.zeros(1, 3, 32, 32), "snow", 1.0, "severity is 1.0"),
        (torch.full((1, 3, 32, 32), 1.5), "snow", 1, "expected floating-point values from 0 to 1"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "snow", 1, "the images are torch.uint8"),
        (torch.zeros(1, 3, 31, 40), "snow", 1, "at least 32×32"),
        (torch.zeros(1, 4, 32, 32), "snow", 1, "1 or 3"),
        (torch.zeros(3, 32, 32), "snow", 1, "expected \\(batch"),
    ],
)
def test_what_cannot_be_corrupted(images, name, severity, sentence):
    with pytest.raises(InputError, match=sentence):
        corrupt(images, name, severity)


def test_indices_and_textures_that_do_not_fit(tmp_path):
    images = torch.zeros(2, 3, 32, 32)
    with pytest.raises(InputError, match="2 images and 3 indices"):
        corrupt(images, "snow", 1, indices=[1, 2, 3])
    with pytest.raises(InputError, match="holds no pictures of frost"):
        corrupt(images, "frost", 1, frost=tmp_path)
    (tmp_path / "frost1.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"frost1\.png cannot be read"):
        corrupt(images, "frost", 1, frost=tmp_path)
    assert corrupt(images[:0], "fog", 1).shape == (0, 3, 32, 32)
    small = Textures([torch.rand(3, 20, 30)])
    assert corrupt(images, "frost", 1, frost=small).shape == images.shape
