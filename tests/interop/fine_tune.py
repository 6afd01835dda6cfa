"""The examples fine_tune and classify_texts train models that tools/export.py exported, on data that Python wrote; transformers loads the results."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from checks import check, same

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tools"))
try:
    import numpy
    import safetensors.torch
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

FINE_TUNE, CLASSIFY_TEXTS = sys.argv[1:3]
TEXT = ROOT / "docs" / "trackers.md"  # long enough to learn from


def run(folder, program, *arguments):
    ran = subprocess.run([program, "--output_dir", "run", *arguments], cwd=folder, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    check(ran.returncode == 0, ran.stderr)
    return ran.stdout


def fine_tune(folder):
    # The documented command, with this Python.
    command = re.search(r"^python (tools/export.py .*)$", (ROOT / "docs" / "exported-models.md").read_text(), re.MULTILINE)[1]
    shutil.copy(TEXT, f"{folder}/README.md")  # which the program reads
    subprocess.run(f"{sys.executable} {ROOT}/{command}", shell=True, check=True, cwd=folder, capture_output=True)
    said = float(re.search(r"perplexity of a byte: ([0-9.]+)", run(folder, FINE_TUNE, "--max_steps", "400"))[1])
    check(2 < said < 30, f"the perplexity is {said}: about 256 before training, about 20 after it")
    model = transformers.GPT2LMHeadModel.from_pretrained(f"{folder}/fine-tuned").eval()
    data = torch.tensor(list(TEXT.read_bytes()))
    ids = data[: len(data) // 64 * 64].view(-1, 64)
    with torch.no_grad():
        losses = [model(input_ids=part, labels=part).loss.item() for part in ids.split(8)]
    theirs = torch.tensor(losses).mean().exp().item()
    check(abs(theirs - said) < 0.02 * said, f"transformers finds a perplexity of {theirs}, Etude {said}")
    print(f"perplexity {said}, in Python {theirs:.2f}")


def tables():
    """Texts with labels, as columns by name; each label has a word that is frequent in its texts."""
    generator = torch.Generator().manual_seed(1)
    words = ["good", "bad", "film", "music", "actor", "plot"]

    def table(rows):
        labels = torch.randint(0, 2, (rows,), generator=generator)
        pick = lambda label: words[int(label)] if torch.rand((), generator=generator) < 0.5 else words[int(torch.randint(2, 6, (), generator=generator))]
        return {"text": [" ".join(pick(label) for _ in range(12)) for label in labels], "label": labels.tolist()}

    return table(256), table(64)


def small_tokenizer(texts):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, tokenizers.trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_input_names=["input_ids", "attention_mask"])


def data_from_python(folder):
    """Runs the page's Python and C++ as they are, except for its downloads and its pictures, which are random here."""
    downloads, table, model, result, text, tokens, pictures = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "data-from-python.md").read_text(), re.M | re.S)
    check("load_dataset" in downloads and "pipeline" in result, "the page has other parts")
    torch.manual_seed(1)
    train, test = tables()
    tokenizer = small_tokenizer(train["text"])
    config = transformers.DistilBertConfig(vocab_size=len(tokenizer), dim=32, hidden_dim=64, n_layers=1, n_heads=2, max_position_embeddings=128)
    pixels = torch.rand(len(train["label"]), 3, 224, 224, dtype=torch.float16).float()
    processor = lambda picture, return_tensors: transformers.BatchFeature({"pixel_values": picture[None].numpy()})
    given = {"transformers": transformers, "train": train, "test": test, "table": train, "tokenizer": tokenizer, "processor": processor, "pictures": pixels[:8],
             "model": transformers.DistilBertForSequenceClassification(config), "print": lambda *_: None}  # fmt: skip
    before = os.getcwd()
    os.chdir(folder)
    try:
        for part in (table, model):
            exec(part, given)
        said = float(re.search(r"hasn't seen: ([0-9.]+)", run(folder, CLASSIFY_TEXTS, "--num_train_epochs", "4", "--learning_rate", "3e-3"))[1])
        check(said < 0.3, f"the loss is {said}: 0.69 before training")
        exec(result, given)
        right = [answer["label"] == f"LABEL_{label}" for answer, label in zip(given["classify"](list(test["text"])), test["label"])]
        check(sum(right) > 0.9 * len(right), f"{sum(right)} of {len(right)} texts are classified as they are labelled")
        for part in (text, tokens, pictures):
            exec(part, given)
        rows = safetensors.torch.load_file("text.safetensors")["input_ids"].flatten()
        every = numpy.fromfile("train.bin", dtype=numpy.uint16)
        check(rows.tolist() == every[: len(rows)].tolist() and len(every) == 12 * 256, "the two files of tokens differ")
        same(numpy.load("pixels.npy").shape, (8, 3, 224, 224), "the pictures")
        check(torch.equal(torch.from_numpy(numpy.load("pixels.npy")), pixels[:8]), "the pictures are other ones")
    finally:
        os.chdir(before)
    print(f"texts with a loss of {said}, {sum(right)} of {len(right)} classified right in Python")


for part in (fine_tune, data_from_python):
    with tempfile.TemporaryDirectory() as folder:
        part(folder)
