#!/usr/bin/env python3
"""Turns texts into files that `etude train` reads, with the model's tokenizer.

    prepare.py train.txt test.txt --tokenizer model.pt2 --output data                     data/train.bin, data/test.bin
    prepare.py train.csv test.csv --tokenizer model.pt2 --output data --text review       data/train.safetensors, ...

A .txt file, or a table without a column of labels, becomes a file of tokens, for a language model. A table (.csv, .jsonl) with
labels becomes fields of equal length: input_ids, attention_mask and any others that the tokenizer makes, and labels. Labels
that are texts become numbers, in alphabetical order of the first file; they are written to classes.json, which `etude train`
reads. The tokenizer is a .pt2 file that `etude export` wrote with it, or anything that transformers' AutoTokenizer takes. Needs
transformers and safetensors.
"""

import argparse
import array
import csv
import json
import os
import pathlib
import tempfile
import zipfile

LABEL_COLUMNS = ("labels", "label")


def fail(message):
    raise SystemExit(f"etude prepare: {message}")


def load_tokenizer(source):
    try:
        import transformers
    except ImportError:
        fail("transformers isn't installed: pip install transformers")
    if not source.endswith(".pt2"):
        try:
            return transformers.AutoTokenizer.from_pretrained(source)
        except (OSError, ValueError) as error:
            fail(f"{source} has no tokenizer: {str(error).strip().splitlines()[0]}")
    try:
        with zipfile.ZipFile(source) as archive, tempfile.TemporaryDirectory() as folder:
            for name in archive.namelist():
                parts = pathlib.PurePosixPath(name).parts
                if len(parts) == 3 and parts[1] == "extra":
                    pathlib.Path(folder, parts[2]).write_bytes(archive.read(name))
            if not pathlib.Path(folder, "tokenizer_config.json").exists():
                fail(f"{source} has no tokenizer: export the model with processor=tokenizer, or name another --tokenizer")
            return transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, zipfile.BadZipFile) as error:
        fail(f"{source} can't be read: {error}")


def rows_of(path):
    """The rows of a table, as dicts."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                rows = list(csv.DictReader(file))
            else:
                rows = [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError) as error:
        fail(f"{path} can't be read: {error}")
    if not rows or not all(isinstance(row, dict) for row in rows):
        fail(f"{path} has no rows: must be a CSV file with a header, or one JSON object on each line")
    return rows


def column_of(path, rows, name):
    missing = next((number for number, row in enumerate(rows, 1) if row.get(name) is None), None)
    if missing is not None:
        fail(f"{path}: row {missing} has no '{name}': it has {', '.join(map(str, rows[missing - 1]))}")
    return [row[name] for row in rows]


def text_column(path, rows, options):
    if options.text:
        return options.text
    names = [name for name in rows[0] if name not in LABEL_COLUMNS]
    if len(names) != 1:
        fail(f"{path} has the columns {', '.join(names)}: choose one with --text")
    return names[0]


def label_column(rows, options):
    return options.label or next((name for name in LABEL_COLUMNS if name in rows[0]), None)


def as_numbers(values):
    """Converts texts to integers, or else to floats; None if some are neither."""
    for kind in (int, float):
        try:
            return [kind(value) for value in values]
        except (TypeError, ValueError):
            pass
    return None


class Labels:
    """Leaves numbers unchanged, and replaces texts with their index among those of the first file."""

    def __init__(self):
        self.names = None

    def numbers(self, path, values):
        found = None if self.names else as_numbers(values)
        if found is not None:
            return found
        if not self.names:
            self.names = sorted(set(map(str, values)))
            print("labels: " + ", ".join(f"{number} {name}" for number, name in enumerate(self.names)))
        places = {name: number for number, name in enumerate(self.names)}
        strange = next((value for value in values if str(value) not in places), None)
        if strange is not None:
            fail(f"{path}: the label '{strange}' isn't among those of the first file: {', '.join(self.names)}")
        return [places[str(value)] for value in values]


def replaced(path, write):
    """Writes a file atomically."""
    part = path.with_name(path.name + ".part")
    write(part)
    os.replace(part, path)


def write_tokens(path, texts, tokenizer, options):
    kind, code = ("uint16", "H") if len(tokenizer) <= 1 << 16 else ("uint32", "I")
    end = [] if options.no_eos or tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    count = 0

    def write(part):
        nonlocal count
        with open(part, "wb") as file:
            for text in texts:
                ids = array.array(code, tokenizer(text, add_special_tokens=False).input_ids + end)
                count += len(ids)
                ids.tofile(file)

    replaced(path, write)
    print(f"{path}: {count:,} tokens, --token_type {kind}")


def write_fields(path, texts, labels, tokenizer, options):
    import torch
    from safetensors.torch import save_file

    fields = tokenizer(texts, truncation=True, padding="max_length", max_length=options.length, return_tensors="pt")
    fields = {name: field.contiguous() for name, field in fields.items()} | {"labels": torch.tensor(labels)}
    replaced(path, lambda part: save_file(fields, part))
    print(f"{path}: {len(texts):,} rows of {options.length} tokens, {', '.join(fields)}")


def prepare(path, folder, tokenizer, labels, options):
    if path.suffix == ".txt":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            fail(f"{path} can't be read: {error}")
        return write_tokens(folder / f"{path.stem}.bin", [text], tokenizer, options)
    if path.suffix not in (".csv", ".jsonl"):
        fail(f"{path} is no file of texts: must end in .txt, .csv or .jsonl")
    rows = rows_of(path)
    texts = [str(text) for text in column_of(path, rows, text_column(path, rows, options))]
    label = label_column(rows, options)
    if label is None:
        return write_tokens(folder / f"{path.stem}.bin", texts, tokenizer, options)
    numbers = labels.numbers(path, column_of(path, rows, label))
    write_fields(folder / f"{path.stem}.safetensors", texts, numbers, tokenizer, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE", help="texts: .txt, .csv or .jsonl")
    parser.add_argument("--tokenizer", required=True, help="a .pt2 file, a folder or a name")
    parser.add_argument("--output", required=True, type=pathlib.Path, metavar="FOLDER", help="the folder of the files that are written")
    parser.add_argument("--text", metavar="COLUMN", help="the column of the texts; default: the only one besides the label")
    parser.add_argument("--label", metavar="COLUMN", help="the column of the labels; default: labels or label, if there is one")
    parser.add_argument("--length", type=int, default=128, help="tokens in a row of fields: longer texts are cut, shorter ones padded")
    parser.add_argument("--no-eos", action="store_true", help="write no end-of-sequence token after each text")
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.tokenizer)
    options.output.mkdir(parents=True, exist_ok=True)
    labels = Labels()
    for path in options.files:
        prepare(path, options.output, tokenizer, labels, options)
    if labels.names:
        replaced(options.output / "classes.json", lambda part: part.write_text(json.dumps(labels.names, indent=1) + "\n"))


if __name__ == "__main__":
    main()
