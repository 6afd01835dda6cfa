"""Reads the transaction log of an offline run of Weights & Biases with wandb's own classes."""

import json
import struct
import zlib

from google.protobuf.unknown_fields import UnknownFieldSet
from wandb.proto import wandb_internal_pb2 as pb

try:
    from wandb.sdk.internal.datastore import DataStore
except ImportError:  # since 0.30
    DataStore = None

NEW_RESUME = "resume" in pb.RunRecord.DESCRIPTOR.fields_by_name


def raw_records(path):
    """The contents of a transaction log, read by wandb's own reader if this release has one in Python."""
    if DataStore is not None:
        store = DataStore()
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            yield data
        return
    data = path.read_bytes()
    assert data[:7] == b":W&B\xe1\xbe\x00", data[:7]
    at, record, is_open = 7, b"", False
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            assert data[at : at + left] == bytes(left), "a block's end isn't zeros"
            at += left
            continue
        crc, size, kind = struct.unpack("<IHB", data[at : at + 7])
        assert size <= left - 7, "a chunk goes beyond its block"
        part = data[at + 7 : at + 7 + size]
        assert len(part) == size and zlib.crc32(bytes([kind]) + part) == crc, f"a broken chunk at {at}"
        assert (kind in (1, 2)) != is_open, f"a chunk of kind {kind} at {at}"
        record += part
        at += 7 + size
        is_open = kind in (2, 3)  # perhaps with nothing in it yet
        if not is_open:
            yield record
            record = b""
    assert not is_open, "the last record isn't whole"


def refuse_unknown_fields(message):
    assert len(UnknownFieldSet(message)) == 0, f"wandb doesn't know all fields of {message}"
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            parts = value.values() if hasattr(value, "values") else [value] if hasattr(value, "ListFields") else value
            for part in parts:
                refuse_unknown_fields(part)


def records_of(folder):
    (path,) = folder.glob("run-*.wandb")
    records = [pb.Record.FromString(data) for data in raw_records(path)]
    assert [record.num for record in records] == list(range(1, len(records) + 1)), "records are missing"
    for record in records:
        if NEW_RESUME:  # older releases lack some fields, and skip them
            refuse_unknown_fields(record)
    return records


def kinds_of(records):
    return [record.WhichOneof("record_type") for record in records]


def items(list_of_items):
    values = {}
    for item in list_of_items:
        (key,) = item.nested_key if item.nested_key else [item.key]
        assert key not in values, f"{key} twice"
        values[key] = json.loads(item.value_json)
    return values


def rows_of(records):
    rows = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            rows.append(items(record.history.item))
            assert rows[-1]["_step"] == record.history.step.num
    return rows
