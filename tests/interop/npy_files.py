"""We read what NumPy saves bit for bit, in each version of its format, and NumPy reads what we save."""

import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

dtypes = ["?", "u1", "i1", "i2", "f2", "i4", "f4", "i8", "f8", "c8", "c16"]
shapes = [(), (1,), (7,), (2, 3), (3, 0, 2), (2, 3, 4, 5)]
generator = numpy.random.default_rng(1)


def example(dtype, shape):
    values = generator.integers(0, 2 if dtype == "?" else 100, shape)
    return numpy.asarray(values).astype(dtype)


refused = {
    "fortran.npy": (numpy.asfortranarray(numpy.ones((2, 3), "f4")), "fortran_order is True: must be False"),
    "big_endian.npy": (numpy.ones(3, ">f4"), "descr is '>f4': must be little-endian"),
    "text.npy": (numpy.array(["a", "bc"]), "descr is '<U2': must be one of"),
    "objects.npy": (numpy.array([{}, 1], dtype=object), "descr is '|O': arrays of Python objects"),
    "records.npy": (numpy.zeros(3, [("x", "f4"), ("naïve", "i8")]), "descr: structured dtypes"),
    "dates.npy": (numpy.zeros(3, "M8[s]"), "descr is '<M8[s]': must be one of"),
}

with tempfile.TemporaryDirectory() as directory:
    program, theirs, ours = sys.argv[1], pathlib.Path(directory) / "theirs", pathlib.Path(directory) / "ours"
    theirs.mkdir()
    ours.mkdir()
    arrays = {}
    for dtype in dtypes:
        for i, shape in enumerate(shapes):
            name = f"{numpy.dtype(dtype).name}_{i}.npy"
            arrays[name] = example(dtype, shape)
            with open(theirs / name, "wb") as file:
                numpy.lib.format.write_array(file, arrays[name], version=(1 + i % 3, 0))
    for name, (array, _) in refused.items():
        numpy.save(theirs / name, array)

    lines = subprocess.run([program, theirs, ours], check=True, capture_output=True, text=True).stdout.splitlines()
    said = dict(line.split("\t") for line in lines)
    assert said.keys() == arrays.keys() | refused.keys(), said
    for name, array in arrays.items():
        assert said[name] == f"{array.dtype.name} [{', '.join(map(str, array.shape))}]", said[name]
        again = numpy.load(ours / name)
        assert again.dtype == array.dtype and again.shape == array.shape, name
        assert again.tobytes() == array.tobytes(), name
        numpy.save(theirs / name, array)
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    for name, (_, error) in refused.items():
        assert error in said[name], said[name]
