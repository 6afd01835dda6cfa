"""Small models of many architectures with random weights, for exported.py: name -> (model, inputs by name, loss)."""

import typing
import warnings

import torch

warnings.filterwarnings("ignore")
# torchvision's Python code works without its compiled operators, if these are declared.
torchvision_operators = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    torchvision_operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
BATCH, LENGTH, CLASSES, VOCABULARY = 4, 16, 5, 96


def text(rows, *, classes=None, masked=True):
    ids = torch.randint(1, VOCABULARY, (rows, LENGTH))
    mask = torch.ones_like(ids)
    if masked:
        for row in range(rows):
            mask[row, LENGTH - row % 4 :] = 0
    labels = torch.randint(0, classes, (rows,)) if classes else torch.where(mask == 1, ids, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def image(rows, size, name="x", labels="labels"):
    return {name: torch.rand(rows, 3, size, size), labels: torch.randint(0, CLASSES, (rows,))}


def gpt2(rows):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=2, use_cache=False)
    return GPT2LMHeadModel(config), text(rows), "own"


def llama(rows):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, use_cache=False)
    return LlamaForCausalLM(config), text(rows), "own"


def bert(rows):
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                        max_position_embeddings=32, num_labels=CLASSES)
    return BertForSequenceClassification(config), text(rows, classes=CLASSES), "own"


def modern_bert(rows):
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    config = ModernBertConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                              max_position_embeddings=32, pad_token_id=0)
    return ModernBertForMaskedLM(config), text(rows), "own"


def t5(rows):
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, use_cache=False)
    return T5ForConditionalGeneration(config), text(rows), "own"


def vit(rows):
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8, num_labels=CLASSES)
    return ViTForImageClassification(config), image(rows, 32, "pixel_values"), "own"


def whisper(rows):
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
                           encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=20, max_target_positions=32, pad_token_id=0,
                           bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, use_cache=False, begin_suppress_tokens=None)
    return WhisperForConditionalGeneration(config), {"input_features": torch.rand(rows, 8, 40), "labels": torch.randint(3, VOCABULARY, (rows, LENGTH))}, "own"


def resnet(rows):
    import torchvision

    return torchvision.models.resnet18(num_classes=CLASSES), image(rows, 32), "cross_entropy"


def mobilenet(rows):
    import torchvision

    return torchvision.models.mobilenet_v3_small(num_classes=CLASSES), image(rows, 32), "cross_entropy"


def convnext(rows):
    import timm

    return timm.create_model("convnext_atto", num_classes=CLASSES, drop_path_rate=0.1), image(rows, 32), "cross_entropy"


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, 16)
        self.lstm = torch.nn.LSTM(16, 24, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True)
        self.head = torch.nn.Linear(48, VOCABULARY)

    def forward(self, tokens, labels=None):
        logits = self.head(self.lstm(self.embedding(tokens))[0])
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


def lstm(rows):
    tokens = torch.randint(0, VOCABULARY, (rows, LENGTH))
    return Lstm(), {"tokens": tokens, "labels": tokens.roll(-1, 1)}, "own"


class UNetOutput(typing.NamedTuple):
    loss: torch.Tensor
    image: torch.Tensor


class UNet(torch.nn.Module):
    """Two levels, with group and batch norms, a transposed convolution and an interpolation."""

    def __init__(self):
        super().__init__()
        self.down = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.GroupNorm(2, 8), torch.nn.SiLU())
        self.middle = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, stride=2, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Dropout2d(0.1))
        self.up = torch.nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = torch.nn.Conv2d(24, 3, 1)

    def forward(self, x, labels) -> UNetOutput:
        high = self.down(x)
        low = self.middle(high)
        wide = torch.nn.functional.interpolate(low, scale_factor=2.0, mode="bilinear")
        y = self.out(torch.cat([high, self.up(low), wide[:, :8]], 1))
        return UNetOutput(torch.nn.functional.mse_loss(y, labels), y)


def unet(rows):
    return UNet(), {"x": torch.rand(rows, 3, 16, 16), "labels": torch.rand(rows, 3, 16, 16)}, "own"


class Custom(torch.nn.Module):
    """A custom operator, regions without gradients and with autocast, a condition, and arithmetic of sizes."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(6, 16)
        self.out = torch.nn.Linear(16, CLASSES)
        self.register_buffer("offset", torch.arange(16.0) / 16, persistent=False)

    def forward(self, x):
        with torch.no_grad():
            centre = x.mean(0, keepdim=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.hidden(x - centre)
        h = torch.ops.etude_test.scaled_tanh(h.float() + self.offset, 1.5)
        h = torch.cond(h.sum() > 0, lambda h: h * 1.25, lambda h: h - 0.25, (h,))
        h = h.reshape(x.shape[0] * 2, 8).sum(1, keepdim=True).reshape(x.shape[0], -1).repeat(1, 8) + h
        return self.out(h)


def custom(rows):
    if not hasattr(torch.ops.etude_test, "scaled_tanh"):
        torch.library.define("etude_test::scaled_tanh", "(Tensor x, float scale) -> Tensor")
        torch.library.impl("etude_test::scaled_tanh", "CompositeImplicitAutograd", lambda x, scale: torch.tanh(x * scale))
    return Custom(), {"x": torch.randn(rows, 6), "labels": torch.randint(0, CLASSES, (rows,))}, "cross_entropy"


MODELS = [gpt2, llama, bert, t5, vit, whisper, resnet, mobilenet, convnext, lstm, unet, custom]
