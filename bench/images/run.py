"""Measures the images/s of a dataset of PNG files with Etude's loader, torch::data's and PyTorch's DataLoader. Writes images.md
and images.json.

Each decodes RGB files of 256x256 pixels, crops 224x224 at random, mirrors at random, normalizes to float32 and makes batches of 32,
in a random order. A run is a separate process that makes one pass, including the start of its workers but not Python's
imports. In each round every contestant runs once, in random order.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent.parent / ".venv" / "vision"))  # pillow
SIDE, CROP, BATCH = 256, 224, 32
CONTESTANTS = ["pytorch", "torch_data", "etude"]


def pytorch(folder, workers):
    """One pass of PyTorch's DataLoader; prints the same line as images_bench."""
    import numpy
    import torch
    from PIL import Image

    mean, deviation = (torch.tensor(values).reshape(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    paths = sorted(folder.iterdir())

    def transformed(index, top, left, is_mirrored):
        with Image.open(paths[index]) as image:
            pixels = torch.from_numpy(numpy.array(image.convert("RGB")))
        pixels = pixels[top : top + CROP, left : left + CROP]
        if is_mirrored:
            pixels = pixels.flip(1)
        return pixels.permute(2, 0, 1).to(torch.float32).div_(255).sub_(mean).div_(deviation)

    class Files(torch.utils.data.Dataset):
        def __len__(self):
            return len(paths)

        def __getitem__(self, index):
            top, left, side = (random.randint(0, SIDE - CROP) for _ in range(3))
            return transformed(index, top, left, side % 2 == 1), index

    torch.set_num_threads(1)
    begin = time.perf_counter()
    images = sum(len(batch) for batch, _ in torch.utils.data.DataLoader(Files(), batch_size=BATCH, shuffle=True, num_workers=workers))
    seconds = time.perf_counter() - begin
    first = transformed(0, 0, 0, True).to(torch.float64)
    weights = torch.arange(first.numel()).reshape(first.shape).remainder(97)
    print(json.dumps({"images": images, "seconds": seconds, "first": (first * weights).mean().item()}))


def run(contestant, workers, folder, program, environment):
    command = [sys.executable, __file__, "--pass", str(workers), "--folder", folder] if contestant == "pytorch" else [program, contestant, folder, str(workers)]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if ran.returncode != 0:
        sys.exit(f"{contestant}, {workers} workers: {ran.stderr[-2000:]}")
    return json.loads(ran.stdout)


def has_pytorch():
    try:
        import numpy  # noqa: F401
        import PIL  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        print(f"left out: pytorch ({error})", file=sys.stderr)
        return False
    return True


def table(results):
    lines = ["| workers | images/s of the first | " + " | ".join(next(iter(results.values()))) + " |"]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    for workers, runs in results.items():
        base = next(iter(runs.values()))
        rate = statistics.median(r["images"] / r["seconds"] for r in base)
        ratios = ([b["seconds"] / r["seconds"] for b, r in zip(base, each)] for each in runs.values())
        lines.append(f"| {workers} | {rate:.0f} | " + " | ".join(f"{statistics.median(r):.2f} ({min(r):.2f}-{max(r):.2f})" for r in ratios) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, help="images_bench")
    parser.add_argument("--output", type=Path, help="folder for images.md and images.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--same-malloc", action="store_true", help="give all contestants the settings of malloc that Etude's trainers make")
    parser.add_argument("--workers", type=lambda s: [int(n) for n in s.split(",")], default=[0, 1, 2])
    parser.add_argument("--pass", type=int, dest="one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        return pytorch(options.folder, options.one)
    program = options.program.resolve()
    environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if options.same_malloc:
        environment |= {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
    names = [name for name in CONTESTANTS if name != "pytorch" or has_pytorch()]
    results = {workers: {name: [] for name in names} for workers in options.workers}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "make", folder, str(options.images)], check=True)
        for turn in range(options.rounds):
            for workers, runs in results.items():
                for name in random.sample(names, len(names)):
                    runs[name].append(run(name, workers, folder, program, environment))
            print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    text = f"Medians of {options.rounds} rounds with the least and the greatest; the first contestant's rate is 1.\n\n" + table(results)
    (options.output / "images.md").write_text(text)
    (options.output / "images.json").write_text(json.dumps(results, indent=1) + "\n")
    print("\n" + text)
    runs = [r for by_name in results.values() for each in by_name.values() for r in each]
    if any(r["images"] != options.images for r in runs):
        sys.exit("not the same work: a pass left images out")
    if max(abs(r["first"] - runs[0]["first"]) for r in runs) > 1e-5:
        sys.exit("not the same work: the first image's pixels differ")


if __name__ == "__main__":
    main()
