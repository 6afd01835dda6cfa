"""We read the PNG and JPEG files that Pillow writes, of each mode, size and subsampling, with the pixels that Pillow reads."""

import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent.parent / ".venv" / "vision"))
try:
    import numpy
    from PIL import Image
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

generator = numpy.random.default_rng(1)
channels = {"1": 1, "L": 1, "LA": 2, "P": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}


def picture(mode, width, height):
    """Smooth enough for JPEG, with some noise."""
    shape = (height, width, channels[mode])
    y, x, channel = numpy.ogrid[:height, :width, : channels[mode]]
    values = (3 * x + 5 * y + 40 * channel + generator.integers(0, 30, shape)) % 256
    array = values.astype("u1").squeeze(2) if channels[mode] == 1 else values.astype("u1")
    if mode == "1":
        return Image.fromarray(array).convert("1")
    if mode == "P":
        return Image.fromarray(values.astype("u1").repeat(3, 2)).quantize(50)
    return Image.fromarray(array, mode if mode == "CMYK" else None)


with tempfile.TemporaryDirectory() as directory:
    program, theirs, ours = sys.argv[1], pathlib.Path(directory) / "theirs", pathlib.Path(directory) / "ours"
    theirs.mkdir()
    ours.mkdir()
    for width, height in (1, 1), (7, 5), (33, 17), (200, 131):
        for mode in "1", "L", "LA", "P", "RGB", "RGBA":
            picture(mode, width, height).save(theirs / f"{mode}_{width}.png")
        for mode in "L", "RGB", "CMYK":
            for subsampling in 0, 1, 2:
                for progressive in False, True:
                    picture(mode, width, height).save(theirs / f"{mode}_{width}_{subsampling}_{progressive}.jpg",
                                                      subsampling=subsampling, progressive=progressive)

    subprocess.run([program, theirs, ours], check=True)
    files = sorted(theirs.iterdir())
    assert len(files) == 96, files
    for path in files:
        for mode in "RGB", "L":
            expected = numpy.asarray(Image.open(path).convert(mode))
            expected = expected.transpose(2, 0, 1) if mode == "RGB" else expected[None]
            pixels = numpy.load(ours / f"{path.name}.{mode}.npy")
            assert pixels.dtype == numpy.uint8 and numpy.array_equal(pixels, expected), (path.name, mode)
