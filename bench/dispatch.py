#!/usr/bin/env python3
"""Measures how many nanoseconds the callback handlers of Hugging Face's Trainer and of pytorch-accelerated take per event,
with 0 to 64 callbacks that each count it. Prints a Markdown table. A package that isn't installed is left out.
"""

import statistics
import time

COUNTS = (0, 1, 4, 16, 64)
ROUNDS = 21


def nanoseconds(raise_event):
    events = 100
    while True:
        begin = time.perf_counter()
        for _ in range(events):
            raise_event()
        if time.perf_counter() - begin > 2e-3:
            break
        events *= 2
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(events):
            raise_event()
        taken.append((time.perf_counter() - begin) * 1e9 / events)
    return statistics.median(taken)


def counting(base, method):
    def count(self, *args, **kwargs):
        self.steps += 1

    return type("Counts", (base,), {"steps": 0, method: count})


def hugging_face():
    from transformers import TrainerCallback, TrainerControl, TrainerState
    from transformers.trainer_callback import CallbackHandler

    def handler_of(count):
        handler = CallbackHandler([], None, None, None, None)
        handler.callbacks = [counting(TrainerCallback, "on_step_end")() for _ in range(count)]
        state, control = TrainerState(), TrainerControl()
        return lambda: handler.on_step_end(None, state, control)

    return handler_of


def pytorch_accelerated():
    from pytorch_accelerated.callbacks import CallbackHandler, TrainerCallback

    def handler_of(count):
        handler = CallbackHandler([counting(TrainerCallback, "on_train_step_end")() for _ in range(count)])
        return lambda: handler.call_event("on_train_step_end", None, batch=None, batch_output=None)

    return handler_of


def main():
    import logging

    logging.disable(logging.WARNING)
    rows = {}
    for name, make in (("Hugging Face's Trainer", hugging_face), ("pytorch-accelerated", pytorch_accelerated)):
        try:
            handler_of = make()
        except ImportError:
            continue
        rows[name] = [nanoseconds(handler_of(count)) for count in COUNTS]
    if not rows:
        return
    print("\nAn event of other trainers, in nanoseconds:\n")
    print("| callbacks |", " | ".join(rows), "|")
    print("|---" * (len(rows) + 1) + "|")
    for row, count in enumerate(COUNTS):
        print(f"| {count} |", " | ".join(f"{taken[row]:.0f}" for taken in rows.values()), "|")


if __name__ == "__main__":
    main()
