#!/usr/bin/env python3
"""Exports architectures of many families with random weights, trains each in Python and in C++, loads the results back and writes a table.

    .venv/bin/python bench/exported/architectures.py --program build/bench/bench/exported_bench --output build/architectures.md

Each model is small, without dropout, and trains for 50 steps with AdamW on batches and texts whose sizes differ from the
export. Both begin with the same weights. "Loaded by" lists the classes that read the same tensors from the folder that C++
saved as from a folder of save_pretrained. Speed is Etude's relative to eager PyTorch's, on one thread; at these sizes, Python
takes most of PyTorch's step. Needs torch, transformers, peft and, in .venv/vision or installed, torchvision and timm. To add a
model, add a function.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "tools"), str(ROOT / ".venv" / "vision"), str(ROOT / "tests" / "interop")]
warnings.filterwarnings("ignore")
import exported_models  # noqa: E402  declares operators for torchvision, which timm imports
import export  # noqa: E402
import optimizer_state  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from exported_folders import check_classes, set_dropout  # noqa: E402

STEPS, WARMUP, BATCH, ROWS, LENGTH, WORDS = 50, 10, 4, 16, 16, 96
EXAMPLES = 2  # rows of the example batch, whose texts are shorter
RATE, DECAY, NORM = 1e-4, 0.01, 1.0  # as in exported_bench
TEXT = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
DECODER = TEXT | {"num_key_value_heads": 2}
PICTURE = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def words(classes=None):
    ids = torch.randint(3, WORDS, (ROWS, LENGTH))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.randint(0, classes, (ROWS,)) if classes else ids.clone()}


def pictures(labels=None):
    return {"pixel_values": torch.rand(ROWS, 3, 32, 32)} | ({"labels": torch.randint(0, labels, (ROWS,))} if labels else {})


def electra():
    config = transformers.ElectraConfig(**TEXT, embedding_size=16, num_labels=3)
    return "encoder", "ELECTRA", transformers.ElectraForSequenceClassification(config), words(3)


def mpnet():
    return "encoder", "MPNet", transformers.MPNetForMaskedLM(transformers.MPNetConfig(**TEXT)), words()


def olmo2():
    return "decoder", "OLMo-2", transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**DECODER)), words()


def granite():
    return "decoder", "Granite", transformers.GraniteForCausalLM(transformers.GraniteConfig(**DECODER, tie_word_embeddings=True)), words()


def olmoe():
    config = transformers.OlmoeConfig(**DECODER, num_experts=4, num_experts_per_tok=2, output_router_logits=True)
    return "experts", "OLMoE", transformers.OlmoeForCausalLM(config), words()


def gpt_oss():
    config = transformers.GptOssConfig(**DECODER, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8)
    return "experts", "gpt-oss", transformers.GptOssForCausalLM(config), words()


def rwkv():
    config = transformers.RwkvConfig(vocab_size=WORDS, context_length=64, hidden_size=32, num_hidden_layers=2, bos_token_id=1, eos_token_id=2)
    data = words()
    return "state-space", "RWKV", transformers.RwkvForCausalLM(config), {name: data[name] for name in ("input_ids", "labels")}


def mamba2():
    config = transformers.Mamba2Config(vocab_size=WORDS, hidden_size=32, num_heads=8, head_dim=8, state_size=8, n_groups=2, num_hidden_layers=2, chunk_size=8,
                                       pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
    data = words()
    return "state-space", "Mamba-2", transformers.Mamba2ForCausalLM(config), {name: data[name] for name in ("input_ids", "labels")}


def beit():
    return "vision", "BEiT", transformers.BeitForImageClassification(transformers.BeitConfig(**PICTURE, num_labels=5)), pictures(5)


class Loss(torch.nn.Module):
    """A model with a custom loss."""

    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, pixel_values, labels):
        return {"loss": self.loss(self.model(pixel_values), labels)}


def mixer():
    from timm.models.mlp_mixer import MlpMixer

    model = MlpMixer(num_classes=5, img_size=32, patch_size=8, num_blocks=2, embed_dim=32)
    return "vision", "MLP-Mixer (timm)", Loss(model, torch.nn.functional.cross_entropy), pictures(5)


def yolos():
    """Assigns boxes to fixed queries, since matching them to the nearest boxes depends on values."""
    config = transformers.YolosConfig(**(PICTURE | {"image_size": [32, 32]}), num_detection_tokens=4, num_labels=3)
    loss = lambda output, labels: torch.nn.functional.l1_loss(output.pred_boxes, labels) + output.logits.logsumexp(-1).mean()
    return "detection", "YOLOS, fixed assignment", Loss(transformers.YolosForObjectDetection(config), loss), pictures() | {"labels": torch.rand(ROWS, 4, 4)}


def dpt():
    config = transformers.DPTConfig(**(PICTURE | {"num_hidden_layers": 4}), neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16, backbone_out_indices=[0, 1, 2, 3], num_labels=4,
                                    use_batch_norm_in_fusion_residual=False, readout_type="ignore", use_auxiliary_head=True)  # fmt: skip
    return "segmentation", "DPT", transformers.DPTForSemanticSegmentation(config), pictures() | {"labels": torch.randint(0, 4, (ROWS, 32, 32))}


def ast():
    config = transformers.ASTConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_length=48, num_mel_bins=32, num_labels=5)
    return "speech", "Audio Spectrogram Transformer", transformers.ASTForAudioClassification(config), {"input_values": torch.randn(ROWS, 48, 32), "labels": torch.randint(0, 5, (ROWS,))}


def patchtsmixer():
    config = transformers.PatchTSMixerConfig(context_length=32, patch_length=8, patch_stride=8, num_input_channels=3, prediction_length=8, d_model=16, num_layers=2)
    return "time series", "PatchTSMixer", transformers.PatchTSMixerForPrediction(config), {"past_values": torch.randn(ROWS, 32, 3), "future_values": torch.randn(ROWS, 8, 3)}


def mae():
    config = transformers.ViTMAEConfig(**PICTURE, decoder_hidden_size=16, decoder_num_hidden_layers=1, decoder_num_attention_heads=2, decoder_intermediate_size=32)
    return "generative", "ViT-MAE", transformers.ViTMAEForPreTraining(config), pictures() | {"noise": torch.rand(ROWS, 16)}


class DeepFM(torch.nn.Module):
    """DeepFM: embeddings of fields, their pairwise products, and a network on them."""

    def __init__(self, sizes=(50, 20, 10), width=8):
        super().__init__()
        self.first = torch.nn.ModuleList(torch.nn.Embedding(size, 1) for size in sizes)
        self.second = torch.nn.ModuleList(torch.nn.Embedding(size, width) for size in sizes)
        self.deep = torch.nn.Sequential(torch.nn.Linear(width * len(sizes), 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    def forward(self, fields, labels):
        first = sum(table(fields[:, i]) for i, table in enumerate(self.first))
        factors = torch.stack([table(fields[:, i]) for i, table in enumerate(self.second)], 1)
        second = 0.5 * (factors.sum(1).square() - factors.square().sum(1)).sum(1, keepdim=True)
        logits = (first + second + self.deep(factors.flatten(1))).squeeze(1)
        return {"loss": torch.nn.functional.binary_cross_entropy_with_logits(logits, labels), "logits": logits}


def deepfm():
    return "recommender", "DeepFM (own)", DeepFM(), {"fields": torch.stack([torch.randint(0, size, (ROWS,)) for size in (50, 20, 10)], 1), "labels": torch.rand(ROWS)}


def lora():
    import peft

    model = transformers.OPTForCausalLM(transformers.OPTConfig(vocab_size=WORDS, hidden_size=32, word_embed_proj_dim=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
                                                               max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2))  # fmt: skip
    options = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["final_layer_norm"], task_type="CAUSAL_LM", init_lora_weights=False)
    return "adapter", "LoRA on OPT (PEFT)", peft.get_peft_model(model, options), words()


ARCHITECTURES = [electra, mpnet, olmo2, granite, olmoe, gpt_oss, rwkv, mamba2, beit, mixer, yolos, dpt, ast, patchtsmixer, mae, deepfm, lora]


def is_text(name, value):
    return name in export.LENGTH_INPUTS and value.shape[1:] == (LENGTH,)


def examples(data):
    """A batch whose sizes differ from the training's."""
    return {name: value[:EXAMPLES, : LENGTH - 4] if is_text(name, value) else value[:EXAMPLES] for name, value in data.items()}


def in_cpp(program, folder):
    command = [program, folder / "model.pt2", folder / "data.safetensors", "own", BATCH, WARMUP, STEPS - WARMUP - 1, time.time(), folder / "trained"]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr.strip().splitlines()[-1])
    return json.loads(ran.stdout.splitlines()[-1])


def in_python(model, data):
    optimizer = torch.optim.AdamW(optimizer_state.parameter_groups(model, DECAY), lr=RATE, fused=True)
    model.train()
    losses = []
    for step in range(STEPS):
        if step == WARMUP:
            begin = time.perf_counter()
        if step == STEPS - 1:
            seconds = time.perf_counter() - begin
        first = step * BATCH % ROWS
        optimizer.zero_grad()
        output = model(**{name: value[first : first + BATCH] for name, value in data.items()})
        loss = output["loss"] if isinstance(output, dict) else output.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses], seconds


def loaded_by(model, trained, folder):
    """The Python classes and functions that load the folder; raises AssertionError if one reads different tensors."""
    if hasattr(model, "peft_config"):
        import peft

        base = type(model.get_base_model())(model.get_base_model().config)
        back = peft.PeftModel.from_pretrained(base, trained)
        own = peft.get_peft_model_state_dict(back)
        saved = safetensors.torch.load_file(trained / "adapter_model.safetensors")
        assert saved and all(torch.equal(own[name], value) for name, value in saved.items()), "PeftModel has other tensors than its file"
        return ["PeftModel"]
    weights = safetensors.torch.load_file(trained / "model.safetensors")
    optimizer_state.load_weights(model, weights)
    if not isinstance(model, transformers.PreTrainedModel):
        return ["load_state_dict"]
    model = type(model).from_pretrained(trained)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in weights.items()), f"{type(model).__name__} has other tensors than its file"
    return list(dict.fromkeys([type(model).__name__, *check_classes(trained, model, folder / "reference")]))


def measure(make, program, rounds):
    torch.manual_seed(1)
    family, name, model, data = make()
    set_dropout(model, 0.0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _, varying = export.export_model(model, examples(data), folder / "model.pt2")
        if "length" not in varying:
            data = {name: value[:, : LENGTH - 4].contiguous() if is_text(name, value) else value for name, value in data.items()}
        safetensors.torch.save_file(data, folder / "data.safetensors")
        start = {key: value.clone() for key, value in model.state_dict().items()}
        ratios = []
        for _ in range(rounds):
            model.load_state_dict(start)
            ours = in_cpp(program, folder)
            theirs, seconds = in_python(model, data)
            ratios.append(seconds / ours["seconds"])
        difference = max(abs(a - b) / abs(b) for a, b in zip(ours["losses"], theirs, strict=True))
        fell = theirs[-1] < theirs[0]
        classes = loaded_by(model, folder / "trained", folder)
    return {"family": family, "name": name, "varies": varying, "difference": difference, "ratio": statistics.median(ratios), "classes": classes, "fell": fell}


def table(results):
    lines = ["| Family | Architecture | Sizes that vary | Greatest difference of a loss | Speed | Loaded by |", "|---|---|---|---|---|---|"]
    for result in results:
        classes = result["classes"]
        listed = f"`{classes[0]}`" + (f" and {len(classes) - 1} more" if len(classes) > 1 else "")
        lines.append(f"| {result['family']} | {result['name']} | {result['varies']} | {'0' if result['difference'] == 0 else format(result['difference'], '.0e')} | {result['ratio']:.1f} | {listed} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=lambda path: Path(path).resolve(), required=True, help="exported_bench")
    parser.add_argument("--output", type=Path, help="a file for the table")
    parser.add_argument("--models", type=lambda text: text.split(","), help="names of functions, such as electra,lora; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median speed counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    results, failed = [], []
    for make in ARCHITECTURES:
        if options.models and make.__name__ not in options.models:
            continue
        try:
            results.append(measure(make, options.program, options.rounds))
            print(results[-1], file=sys.stderr, flush=True)
        except Exception as error:
            failed.append(f"{make.__name__}: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")
            print(failed[-1], file=sys.stderr, flush=True)
    print(table(results))
    if options.output:
        options.output.write_text(table(results))
    if failed:
        raise SystemExit("these failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
