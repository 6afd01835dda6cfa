"""The table of optimizers.py: each optimizer, and a function that makes the same one in Python, by torch, the authors or others."""

import dataclasses
import importlib
import importlib.util
import pathlib
import sys
import types
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# timm needs torchvision, which is in a separate folder, since its operators aren't compiled for this torch.
sys.path += [str(ROOT / ".venv" / "vision"), str(ROOT / "tools")]
try:
    import torch

    import exported_models  # declares operators for torchvision, which timm imports
    import optimi
    import pytorch_optimizer
    import schedulefree
    import timm.optim
    import transformers.optimization

    galore = importlib.util.find_spec("galore_torch")
    if not galore:
        raise ImportError("No module named 'galore_torch'")
    # The package's __init__ needs bitsandbytes; its AdamW doesn't.
    sys.modules["galore_torch"] = types.ModuleType("galore_torch")
    sys.modules["galore_torch"].__path__ = list(galore.submodule_search_locations)
    galore = importlib.import_module("galore_torch.adamw")
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


@dataclasses.dataclass
class Row:
    """An optimizer, and `reference`, which makes Python's from groups with lr and weight_decay."""

    optim: str
    reference: object
    options: dict = dataclasses.field(default_factory=dict)  # as in optim_args
    lr: float = 0.01
    weight_decay: float = 0.02
    network: str = "dense"
    max_norm: float = 0.6  # 0 doesn't clip
    factors: dict = dataclasses.field(default_factory=lambda: {"second": 0.5})  # of the learning rates of some parameters
    batches: int = 40
    longest: int = 10_000  # steps
    tolerance: float = 1e-6

    def __post_init__(self):
        details = ",".join(f"{name}={value}" for name, value in self.options.items())
        self.name = f"{self.optim}({details})" + (" sparse" if self.network == "sparse" else "")

    def arguments(self):
        options = {name: str(value).lower() if isinstance(value, bool) else value for name, value in self.options.items()}
        return [
            *("--output_dir", "unused", "--optim", self.optim, "--learning_rate", repr(self.lr), "--weight_decay", repr(self.weight_decay)),
            *("--optim_args", ",".join(f"{name}={value}" for name, value in options.items())),
            *("--parameter_groups", "; ".join(f"{name}: lr_factor={factor}" for name, factor in self.factors.items())),
        ]


class Several:
    """Optimizers that step together."""

    def __init__(self, optimizers):
        self.optimizers = list(optimizers)

    @property
    def param_groups(self):
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


class WithGradients(Several):
    """Several, of which only those step whose parameters have a gradient."""

    def step(self):
        for optimizer in self.optimizers:
            if any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"]):
                optimizer.step()


def by(cls, **options):
    """Makes one optimizer of this class for all groups."""
    return lambda groups: cls(groups, **options)


def each_by(cls, **options):
    """Makes an optimizer for each parameter, for classes that count the steps of a group. Etude counts those of a parameter."""
    return lambda groups: WithGradients(cls([{**group, "params": [parameter]}], **options) for group in groups for parameter in group["params"])


def parts_of(groups, belongs):
    """The groups with only the parameters that belong to a part, without empty groups."""
    parts = [{**group, "params": [parameter for parameter in group["params"] if belongs(parameter)]} for group in groups]
    return [group for group in parts if group["params"]]


class Matrices(torch.optim.Muon):
    """torch's Muon takes only matrices. Here, convolutions are matrices with a row for each output channel, as in the author's code."""

    def __init__(self, groups, in_bfloat16, **options):
        self.originals = [parameter for group in groups for parameter in group["params"]]
        self.in_bfloat16 = in_bfloat16
        super().__init__([{**group, "params": [parameter.detach().flatten(1) for parameter in group["params"]]} for group in groups], **options)

    def step(self):
        matrices = [parameter for group in self.param_groups for parameter in group["params"]]
        for original, matrix in zip(self.originals, matrices):
            matrix.grad = None if original.grad is None else original.grad.flatten(1)
        if self.in_bfloat16:
            super().step()
        else:
            with unittest.mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
                super().step()


def muon(ns_dtype, **options):
    """Muon for matrices and AdamW for the other parameters, as torch's documentation says."""

    def make(groups):
        matrices, others = parts_of(groups, lambda parameter: parameter.dim() >= 2), parts_of(groups, lambda parameter: parameter.dim() < 2)
        return Several([Matrices(matrices, ns_dtype == "bfloat16", **options), torch.optim.AdamW(others)])

    return Row("muon", make, {"ns_dtype": ns_dtype, **options}, lr=0.005)


class ASGD(torch.optim.ASGD):
    """torch's, except that a changed learning rate takes effect at once, not one step later."""

    def step(self):
        for group in self.param_groups:
            lr, lambd, alpha = group["lr"], group["lambd"], group["alpha"]
            for parameter in group["params"]:
                if state := self.state[parameter]:
                    state["eta"].fill_(lr / (1 + lambd * lr * state["step"].item()) ** alpha)
        super().step()


class GaLore(galore.AdamW):
    """The authors' AdamW, except that singular value decompositions aren't made in float32, where vectors may get other signs."""

    def step(self):
        with unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.clone):
            super().step()


def galore_adamw(**options):
    """The authors' AdamW, which projects the gradients of matrices."""

    def make(groups):
        matrices, others = parts_of(groups, lambda parameter: parameter.dim() == 2), parts_of(groups, lambda parameter: parameter.dim() != 2)
        return GaLore([{"proj_type": "std", **group, **options} for group in matrices] + others, eps=1e-6, no_deprecation_warning=True)

    return Row("galore_adamw", make, {"eps": 1e-6, **options})


def sparse(optim, reference, options=None, **more):
    return Row(optim, reference, options or {}, network="sparse", weight_decay=0.0, max_norm=0.0, **more)


def lbfgs(line_search, **options):
    return Row(
        "lbfgs",
        by(torch.optim.LBFGS, line_search_fn=line_search, **options),
        {**options, **({"line_search_fn": line_search} if line_search else {})},
        lr=0.2,
        weight_decay=0.0,
        max_norm=0.0,
        factors={},
        batches=1,
        longest=30,  # once it has converged, it divides rounding errors by rounding errors
    )


def adafactor(**options):
    beta1 = {"beta1": options["beta1"]} if "beta1" in options else {}
    scale, relative = options.get("scale_parameter", False), options.get("relative_step", False)

    def make(groups):
        groups = [{**group, "lr": None} for group in groups] if relative else groups
        return transformers.optimization.Adafactor(
            groups, scale_parameter=scale, relative_step=relative, warmup_init=options.get("warmup_init", False), **beta1
        )

    return Row("adafactor", make, options)


class EightBit(torch.optim.Optimizer):
    """AdamW, or Lion without eps, with the 8-bit moments of bitsandbytes: see create_dynamic_map in its functional.py for the
    codes. Its own kernels for the CPU don't choose the nearest code. Unlike in its kernels for GPUs, only the square 0 gets the
    code of 0, since a denominator of 0 makes a huge step.
    """

    def __init__(self, groups, betas, eps=None, min_8bit_size=4096):
        super().__init__(groups, {"lr": None, "weight_decay": 0.0})
        self.betas, self.eps, self.min_8bit_size = betas, eps, min_8bit_size

    @staticmethod
    def codes(has_sign):
        codes = [0.0, 1.0]
        for decade in range(7):
            edges = torch.linspace(0.1, 1, (1 if has_sign else 2) * 2**decade + 1, dtype=torch.float64)
            values = (10.0 ** (decade - 6) * (edges[:-1] + edges[1:]) / 2).tolist()
            codes += values + ([-value for value in values] if has_sign else [])
        return torch.tensor(sorted(codes), dtype=torch.float32)

    @classmethod
    def rounded(cls, values, has_sign):
        """The values that remain of a moment after quantization in blocks of 256."""
        codes = cls.codes(has_sign)
        bounds = (codes[1:] + codes[:-1]) / 2
        if not has_sign:
            bounds[0] = 0
        blocks = values.float().flatten().split(256)
        scales = [block.abs().max() for block in blocks]
        return torch.cat([codes[torch.bucketize(block / (scale if scale > 0 else 1), bounds)] * scale for block, scale in zip(blocks, scales)]).view(values.shape)

    @torch.no_grad()
    def step(self):
        beta1, beta2 = self.betas
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
                state["step"] += 1
                mean, square = state["mean"], state["square"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                if self.eps is None:
                    p.sub_((beta1 * mean + (1 - beta1) * p.grad).sign(), alpha=group["lr"])
                    mean.mul_(beta2).add_(p.grad, alpha=1 - beta2)
                else:
                    mean.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                    square.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                    correction1, correction2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
                    p.addcdiv_(mean / correction1, (square / correction2).sqrt() + self.eps, value=-group["lr"])
                if p.numel() >= self.min_8bit_size:
                    mean.copy_(self.rounded(mean, True))
                    square.copy_(self.rounded(square, False))


class ScheduleFree(WithGradients):
    """The authors' class for each group. It counts the steps of a group, even those in which none of its parameters has a gradient."""

    def __init__(self, optimizers):
        super().__init__(optimizers)
        for optimizer in self.optimizers:
            optimizer.train()

    def averaged(self, parameters):
        """The weights to evaluate and save."""
        kept = [parameter.detach().clone() for parameter in parameters]
        for optimizer in self.optimizers:
            optimizer.eval()
        averaged = [parameter.detach().clone() for parameter in parameters]
        for optimizer in self.optimizers:
            optimizer.train()
        with torch.no_grad():
            for parameter, values in zip(parameters, kept):
                parameter.copy_(values)
        return averaged


def schedule_free(optim, cls, options):
    # All parameters in a group have gradients in the same steps.
    factors = {"second": 0.5, "sometimes": 0.8}
    return Row(optim, lambda groups: ScheduleFree(cls([group], **options) for group in groups), options, factors=factors)


def ademamix(t=None):
    options = {"beta3": 0.999, "alpha": 4.0} | ({"t_alpha": t, "t_beta3": t} if t else {})
    return Row(
        "ademamix",
        # Without weight_decouple, it adds the decay to the gradient, unlike the paper.
        each_by(pytorch_optimizer.AdEMAMix, betas=(0.9, 0.999, 0.999), alpha=4.0, t_alpha_beta3=t, weight_decouple=True),
        options,
        lr=0.001,
    )


ROWS = [
    Row("adamw_torch", by(torch.optim.AdamW)),
    Row("adamw_torch", by(torch.optim.AdamW, betas=(0.8, 0.95), eps=1e-4, amsgrad=True), {"beta1": 0.8, "beta2": 0.95, "eps": 1e-4, "amsgrad": True}),
    Row("adamw_torch_fused", by(torch.optim.AdamW)),
    Row("adamw_torch_fused", by(torch.optim.AdamW, amsgrad=True), {"amsgrad": True}),
    Row("adam", by(torch.optim.Adam, betas=(0.8, 0.95)), {"beta1": 0.8, "beta2": 0.95}),
    Row("adam", by(torch.optim.Adam, amsgrad=True), {"amsgrad": True, "fused": False}),
    Row("sgd", by(torch.optim.SGD), lr=0.1),
    Row("sgd", by(torch.optim.SGD, momentum=0.9, dampening=0.3), {"momentum": 0.9, "dampening": 0.3}),
    Row("sgd", by(torch.optim.SGD, momentum=0.9, nesterov=True), {"momentum": 0.9, "nesterov": True}),
    sparse("sgd", by(torch.optim.SGD), lr=0.1),
    Row("rmsprop", by(torch.optim.RMSprop)),
    Row("rmsprop", by(torch.optim.RMSprop, alpha=0.9, momentum=0.5, centered=True), {"alpha": 0.9, "momentum": 0.5, "centered": True}, lr=0.002),
    Row("rmsprop", by(torch.optim.RMSprop, momentum=0.5, eps=1e-4), {"momentum": 0.5, "eps": 1e-4}, lr=0.002),
    Row("rmsprop", by(torch.optim.RMSprop, centered=True), {"centered": True}, lr=0.002),
    Row("adagrad", by(torch.optim.Adagrad), lr=0.05),
    Row(
        "adagrad",
        by(torch.optim.Adagrad, lr_decay=0.01, initial_accumulator_value=0.1, eps=1e-6),
        {"lr_decay": 0.01, "initial_accumulator_value": 0.1, "eps": 1e-6},
        lr=0.05,
    ),
    sparse("adagrad", by(torch.optim.Adagrad), lr=0.05),
    sparse("sparse_adam", by(torch.optim.SparseAdam)),
    lbfgs(None, max_iter=4),
    lbfgs("strong_wolfe", max_iter=4, history_size=5),
    adafactor(),
    adafactor(beta1=0.9, scale_parameter=True),
    adafactor(scale_parameter=True, relative_step=True, warmup_init=True),
    Row("adamw_8bit", by(EightBit, betas=(0.9, 0.999), eps=1e-8, min_8bit_size=200), {"min_8bit_size": 200}),
    Row("lion", by(timm.optim.Lion, betas=(0.9, 0.99)), {"beta2": 0.99}, lr=0.001),
    Row("lion", by(timm.optim.Lion, betas=(0.95, 0.98)), {"beta1": 0.95, "beta2": 0.98}, lr=0.001),
    Row("lion_8bit", by(EightBit, betas=(0.9, 0.99), min_8bit_size=200), {"beta2": 0.99, "min_8bit_size": 200}, lr=0.001),
    Row("nadam", by(torch.optim.NAdam)),
    Row("nadam", by(torch.optim.NAdam, momentum_decay=0.01, decoupled_weight_decay=True), {"momentum_decay": 0.01, "decoupled_weight_decay": True}),
    Row("radam", by(torch.optim.RAdam)),
    Row("radam", by(torch.optim.RAdam, betas=(0.8, 0.99), decoupled_weight_decay=True), {"beta1": 0.8, "beta2": 0.99, "decoupled_weight_decay": True}),
    # Adamax amplifies rounding: from weights that differ by 1e-14, PyTorch's differ by 2e-4 after 10,000 steps; with the other options,
    # by 7e-2 after 4000.
    Row("adamax", by(torch.optim.Adamax), longest=8000),
    Row("adamax", by(torch.optim.Adamax, betas=(0.8, 0.95), eps=1e-4), {"beta1": 0.8, "beta2": 0.95, "eps": 1e-4}, longest=2000),
    Row("adadelta", by(torch.optim.Adadelta), lr=1.0),
    Row("adadelta", by(torch.optim.Adadelta, rho=0.8, eps=1e-4), {"rho": 0.8, "eps": 1e-4}, lr=0.5),
    Row("asgd", by(ASGD), lr=0.05),
    Row("asgd", by(ASGD, lambd=0.01, alpha=0.6, t0=50), {"lambd": 0.01, "alpha": 0.6, "t0": 50}, lr=0.05),
    Row("rprop", by(torch.optim.Rprop), lr=0.001, weight_decay=0.0),
    Row(
        "rprop",
        by(torch.optim.Rprop, etas=(0.6, 1.1), step_sizes=(1e-5, 0.01)),
        {"etaminus": 0.6, "etaplus": 1.1, "step_size_min": 1e-5, "step_size_max": 0.01},
        lr=0.001,
        weight_decay=0.0,
    ),
    muon("bfloat16"),
    muon("full", nesterov=False, momentum=0.9, adjust_lr_fn="match_rms_adamw"),
    ademamix(),
    ademamix(t=100),
    Row("stable_adamw", each_by(optimi.StableAdamW, lr=0.0, betas=(0.9, 0.99), eps=1e-6, foreach=False, triton=False), {"beta2": 0.99, "eps": 1e-6}),
    # timm's also clips the gradients, which max_grad_norm does here.
    Row("lamb", each_by(timm.optim.Lamb, eps=1e-6, max_grad_norm=None), {"eps": 1e-6}),
    Row(
        "lamb",
        each_by(timm.optim.Lamb, eps=1e-6, max_grad_norm=None, bias_correction=False, trust_clip=True, always_adapt=True),
        {"eps": 1e-6, "bias_correction": False, "trust_clip": True, "always_adapt": True},
    ),
    Row("lamb", each_by(timm.optim.Lamb, eps=1e-6, max_grad_norm=None, decoupled_decay=True), {"eps": 1e-6, "decoupled_decay": True}),
    Row("lars", by(timm.optim.Lars, momentum=0.9, trust_coeff=0.01), {"momentum": 0.9, "trust_coeff": 0.01}, lr=0.1),
    Row(
        "lars",
        by(timm.optim.Lars, momentum=0.9, nesterov=True, trust_coeff=0.05, trust_clip=True, always_adapt=True),
        {"momentum": 0.9, "nesterov": True, "trust_coeff": 0.05, "trust_clip": True, "always_adapt": True},
        lr=0.02,
    ),
    # Larger dimensions would have eigenvectors with equal eigenvalues, which rounding chooses.
    Row("soap", each_by(pytorch_optimizer.SOAP, max_precondition_dim=10), {"beta1": 0.95, "beta2": 0.95, "max_precond_dim": 10}, lr=0.003),
    galore_adamw(rank=4, update_proj_gap=50, scale=0.25),
    galore_adamw(rank=3, update_proj_gap=20, scale=1.0, proj_type="reverse_std"),
    schedule_free("schedule_free_adamw", schedulefree.AdamWScheduleFree, {}),
    schedule_free("schedule_free_adamw", schedulefree.AdamWScheduleFree, {"warmup_steps": 20, "r": 1.0, "weight_lr_power": 1.0}),
    schedule_free("schedule_free_sgd", schedulefree.SGDScheduleFree, {}),
    schedule_free("schedule_free_sgd", schedulefree.SGDScheduleFree, {"momentum": 0.8, "warmup_steps": 20, "r": 0.5}),
]
