"""The samples that `tracked --samples true` logs with the evaluation at a step, and readers of their files."""

import io
import wave

import numpy
from PIL import Image

TEXT, CAPTIONS = "step {}\n<ü & \"b\">", {"cats/first": "a <cat>", "mew": "two channels"}


def text(step):
    return TEXT.format(step)


def pixels(step):
    """Arrays of the pictures, by name."""
    rgb = ((numpy.arange(90) + step) % 256).astype("uint8").reshape(6, 5, 3)
    return {"cats/first": rgb, "grey": rgb[:, :, 0], "clear": numpy.concatenate([rgb, 255 - rgb[:, :, :1]], 2)}


def check_picture(png, name, step):
    image = Image.open(io.BytesIO(png))
    assert image.format == "PNG", image.format
    seen, expected = numpy.asarray(image), pixels(step)[name]
    assert seen.shape == expected.shape and (seen == expected).all(), f"{name} at {step}:\n{seen}\n{expected}"


def check_sound(data):
    waves = ((numpy.arange(10).reshape(2, 5) - 5).astype("float32") / numpy.float32(5)).T
    with wave.open(io.BytesIO(data)) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate(), sound.getnframes()) == (2, 2, 8000, 5)
        seen = numpy.frombuffer(sound.readframes(5), dtype="<i2").reshape(5, 2)
    expected = numpy.round(waves * numpy.float32(32767)).astype("int16")
    assert (seen == expected).all(), f"{seen}\n{expected}"
