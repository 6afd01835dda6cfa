"""The example fine_tune trains a model that tools/export.py exported, on a text; transformers loads the result."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from checks import check

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXT = ROOT / "docs" / "trackers.md"  # long enough to learn from
# The documented command, with this Python.
command = re.search(r"^python (tools/export.py .*)$", (ROOT / "docs" / "exported-models.md").read_text(), re.MULTILINE)[1]
with tempfile.TemporaryDirectory() as folder:
    shutil.copy(TEXT, f"{folder}/README.md")  # which the program reads
    subprocess.run(f"{sys.executable} {ROOT}/{command}", shell=True, check=True, cwd=folder, capture_output=True)
    ran = subprocess.run([PROGRAM, "--max_steps", "400", "--output_dir", "run"], cwd=folder, capture_output=True, text=True,
                         env=dict(os.environ, OMP_NUM_THREADS="1"))
    check(ran.returncode == 0, ran.stderr)
    said = float(re.search(r"perplexity of a byte: ([0-9.]+)", ran.stdout)[1])
    check(2 < said < 30, f"the perplexity is {said}: about 256 before training, about 20 after it")
    model = transformers.GPT2LMHeadModel.from_pretrained(f"{folder}/fine-tuned").eval()
    data = torch.tensor(list(TEXT.read_bytes()))
    ids = data[: len(data) // 64 * 64].view(-1, 64)
    with torch.no_grad():
        losses = [model(input_ids=part, labels=part).loss.item() for part in ids.split(8)]
    theirs = torch.tensor(losses).mean().exp().item()
    check(abs(theirs - said) < 0.02 * said, f"transformers finds a perplexity of {theirs}, Etude {said}")
    print(f"perplexity {said}, in Python {theirs:.2f}")
