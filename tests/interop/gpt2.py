"""Compares the example gpt2 with transformers' GPT2LMHeadModel: scores, generation, training; each loads the other's folders."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from checks import check, same

try:
    import numpy
    import torch
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = sys.argv[1]
VOCABULARY, CONTEXT, ROWS, STEPS, RATE, DECAY = 61, 24, 8, 5, 1e-2, 0.1
PROMPT = [7, 1, 60, 0, 33]
torch.manual_seed(3)
torch.set_num_threads(1)


def run(folder, *arguments, processes=1):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "--no-python"]
    ran = subprocess.run([*(launcher if processes > 1 else []), PROGRAM, "--disable_tqdm", "true", *map(str, arguments)], cwd=folder,
                         capture_output=True, text=True, errors="surrogateescape", env=dict(os.environ, OMP_NUM_THREADS="1"))
    check(ran.returncode == 0, ran.stdout + ran.stderr)
    return ran.stdout


def make(folder):
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, n_inner=80, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                        initializer_range=0.3, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    for name, value in model.named_parameters():  # so that none is zero or one
        if value.dim() == 1:
            value.data += 0.1 * torch.randn_like(value)
    model.save_pretrained(folder)
    return model


def scores_of(folder, model_folder, prompt):
    run(folder, "--model", model_folder, "--prompt", ",".join(map(str, prompt)), "--max_new_tokens", 0, "--logits", "scores.safetensors")
    return load_file(f"{folder}/scores.safetensors")["logits"]


def check_scores(folder, model):
    prompt = torch.randint(0, VOCABULARY, (1, CONTEXT))
    with torch.no_grad():
        expected = model(prompt).logits
    difference = (scores_of(folder, "theirs", prompt[0].tolist()) - expected).abs().max().item()
    check(difference < 1e-5 * expected.abs().max().item(), f"scores differ by {difference}")


def generated(folder, model_folder, *arguments):
    words = run(folder, "--model", model_folder, "--prompt", ",".join(map(str, PROMPT)), *arguments).split(",")
    return [int(word) for word in words]


@torch.no_grad()
def check_generation(folder, model):
    """Greedy generation agrees with transformers', and beyond the context with scores computed without a cache; --top_k 1 is greedy too."""
    new = CONTEXT - len(PROMPT)
    seen = generated(folder, "theirs", "--temperature", 0, "--max_new_tokens", new)
    prompt = torch.tensor([PROMPT])
    theirs = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new, do_sample=False)
    same(seen, theirs[0].tolist(), "generated tokens")
    check(len(set(seen[len(PROMPT):])) > 3, f"too dull a test: {seen}")
    same(generated(folder, "theirs", "--top_k", 1, "--max_new_tokens", new), seen, "from the likeliest token")
    sampled = [generated(folder, "theirs", "--top_k", 5, "--max_new_tokens", new, "--seed", seed) for seed in (1, 1, 2)]
    check(sampled[0] == sampled[1] != sampled[2], f"a seed makes the sample: {sampled}")
    row = torch.tensor([sampled[0]])
    ranks = (model(row).logits[0, :-1] > model(row).logits[0, :-1].gather(1, row[0, 1:, None])).sum(1)[len(PROMPT) - 1:]
    check(0 < ranks.max() < 5, f"ranks of sampled tokens among the 5 likeliest: {ranks}")

    expected, window = list(seen), list(seen)
    for _ in range(CONTEXT):
        if len(window) > CONTEXT:
            window = expected[-(CONTEXT // 2):]
        expected.append(model(torch.tensor([window])).logits[0, -1].argmax().item())
        window.append(expected[-1])
    same(generated(folder, "theirs", "--temperature", 0, "--max_new_tokens", new + CONTEXT), expected, "tokens beyond the context")


def write_tokens(folder):
    """A file whose windows are one batch, so that their order makes no difference."""
    tokens = numpy.random.default_rng(5).integers(0, VOCABULARY, ROWS * CONTEXT + 3).astype(numpy.uint16)
    tokens.tofile(f"{folder}/train.bin")
    windows = torch.tensor(tokens[: ROWS * CONTEXT + 1].astype(numpy.int64))
    return windows[:-1].view(ROWS, CONTEXT), windows[1:].view(ROWS, CONTEXT)


def training_of(output, batch=ROWS):
    return ("--model", "theirs", "--data", "train.bin", "--output_dir", output, "--per_device_train_batch_size", batch, "--max_steps", STEPS,
            "--learning_rate", RATE, "--weight_decay", DECAY, "--adam_beta2", 0.999, "--lr_scheduler_type", "constant", "--warmup_steps", 0,
            "--logging_steps", 1, "--save_strategy", "steps", "--save_steps", STEPS)


def losses(folder, output):
    state = json.loads(pathlib.Path(f"{folder}/{output}/checkpoint-{STEPS}/trainer_state.json").read_text())
    return torch.tensor([entry["loss"] for entry in state["log_history"] if "loss" in entry])


def python_losses(model, inputs, labels):
    """A training loop in Python. Biases and the parameters of normalizations don't decay."""
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    result = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        result.append(loss.item())
    return torch.tensor(result)


def check_training(folder, model):
    inputs, labels = write_tokens(folder)
    expected = python_losses(model, inputs, labels)
    check(expected[-1] < 0.8 * expected[0], f"too dull a test: {expected}")
    for name, processes, arguments, tolerance in (
        ("ours", 1, training_of("ours"), 1e-4),
        ("two", 2, training_of("two", ROWS // 2), 1e-4),
        ("bf16", 1, (*training_of("bf16"), "--bf16", "true"), 0.03),
    ):
        run(folder, *arguments, processes=processes)
        seen = losses(folder, name)
        check(torch.allclose(seen, expected, rtol=tolerance), f"losses of {name}: {seen}, in Python {expected}")
    check(not torch.equal(losses(folder, "bf16"), losses(folder, "ours")), "bf16 changes nothing")

    prompt = torch.tensor([PROMPT])
    ours = scores_of(folder, "ours/model", PROMPT)
    for saved in ("ours/model", f"ours/checkpoint-{STEPS}"):
        reloaded = GPT2LMHeadModel.from_pretrained(f"{folder}/{saved}").eval()
        with torch.no_grad():
            check(torch.allclose(reloaded(prompt).logits, ours, rtol=1e-4, atol=1e-5), f"scores of {saved} in Python")
    with torch.no_grad():
        check(torch.allclose(model(prompt).logits, ours, rtol=1e-3, atol=1e-2), "scores after the same training")
    same(pathlib.Path(f"{folder}/ours/model/config.json").read_text(), pathlib.Path(f"{folder}/theirs/config.json").read_text(), "config.json")


def check_new_model(folder):
    """A model with new weights is a transformers model: config.json, names and initialization. Each byte of a text is a token."""
    text = pathlib.Path(__file__).read_bytes()[: 10 * CONTEXT + 1]
    pathlib.Path(folder, "text.py").write_bytes(text)
    said = run(folder, "--data", "text.py", "--eval_data", "text.py", "--token_type", "uint8", "--vocab_size", 256, "--n_positions", CONTEXT, "--n_embd", 96,
               "--n_layer", 8, "--n_head", 4, "--output_dir", "new", "--max_steps", 1, "--learning_rate", 0, "--save_strategy", "no",
               "--prompt", "The ", "--max_new_tokens", 3)
    perplexity, continued = re.search(r"perplexity ([0-9.]+)\nThe ([\s\S]*)\n$", said).groups()
    check(continued, "the prompt is continued")
    model, report = GPT2LMHeadModel.from_pretrained(f"{folder}/new/model", output_loading_info=True)
    check(not report["missing_keys"] and not report["unexpected_keys"], report)
    deviations = {"wte.weight": 0.02, "c_attn.weight": 0.02, "c_fc.weight": 0.02, "c_proj.weight": 0.02 / 4}
    for name, value in model.named_parameters():
        for end, expected in deviations.items():
            check(not name.endswith(end) or abs(value.std().item() - expected) < 0.1 * expected, f"{name} has a standard deviation of {value.std()}")
    ids = torch.tensor(list(text))
    with torch.no_grad():
        scores = model.eval()(ids[:-1].view(10, CONTEXT)).logits
    expected = torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[1:]).exp().item()
    check(abs(float(perplexity) - expected) < 0.01, f"perplexity {perplexity}, in Python {expected}")


def check_faults(folder):
    def fault(status, *arguments):
        ran = subprocess.run([PROGRAM, *map(str, arguments)], cwd=folder, capture_output=True, text=True)
        same(ran.returncode, status, "exit status")
        return ran.stderr

    other = pathlib.Path(folder, "other")
    other.mkdir()
    config = json.loads(pathlib.Path(folder, "theirs/config.json").read_text())
    pathlib.Path(other, "config.json").write_text(json.dumps(config | {"activation_function": "relu"}))
    check('activation_function is "relu": must be "gelu_new"' in fault(1, "--model", "other"), "another activation")
    check("none may be given" in fault(2, "--model", "theirs", "--n_layer", 3), "options beside a model")
    check("must be less than vocab_size, 61" in fault(2, "--model", "theirs", "--prompt", "3,61"), "a token outside of the vocabulary")


with tempfile.TemporaryDirectory() as folder:
    model = make(f"{folder}/theirs")
    check_scores(folder, model)
    check_generation(folder, model)
    check_training(folder, model)
    check_new_model(folder)
    check_faults(folder)
