"""trainer_state.json is bit-identical state in Etude and transformers, whichever of them wrote it."""

import dataclasses
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    from transformers import TrainerState
except ImportError:
    print("skipped: there is no transformers here")
    sys.exit(77)

program = sys.argv[1]


def bits(value):
    """Converts a value so that only bit-identical values compare equal."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else struct.pack("<d", value))
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    return value


theirs = TrainerState(
    epoch=1.25,
    global_step=10,
    max_steps=24,
    logging_steps=5,
    eval_steps=5,
    save_steps=5,
    train_batch_size=8,
    num_train_epochs=3,
    num_input_tokens_seen=2**53 - 1,
    total_flos=1.5e18,
    log_history=[
        {"epoch": 0.625, "grad_norm": 4.1, "learning_rate": 0.1 + 0.2, "loss": math.nan, "step": 5},
        {"epoch": 0.625, "eval_loss": math.inf, "eval_low": -math.inf, "eval_tiny": 5e-324, "step": 5},
        {"epoch": 1.25, "loss": 1 / 3, "step": 10},
    ],
    best_metric=0.0123,
    best_global_step=10,
    best_model_checkpoint='out "dir"/checkpoint-10',
    trial_params={"lr": [0.1, 0.2]},
    stateful_callbacks={
        "EarlyStoppingCallback": {
            "args": {"early_stopping_patience": 3, "early_stopping_threshold": 0.0},
            "attributes": {"early_stopping_patience_counter": 0},
        }
    },
)

with tempfile.TemporaryDirectory() as folder:
    written, again = pathlib.Path(folder) / "trainer_state.json", pathlib.Path(folder) / "again.json"
    theirs.save_to_json(str(written))
    subprocess.run([program, written, again], check=True)
    ours = TrainerState.load_from_json(str(again))
    assert bits(dataclasses.asdict(ours)) == bits(dataclasses.asdict(theirs)), again.read_text()
    assert json.loads(again.read_text()).keys() == json.loads(written.read_text()).keys()
    print("the state is the same after the round trip")
