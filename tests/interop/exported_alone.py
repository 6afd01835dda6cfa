"""Programs without a trainer train and serve an exported model as Python does, and Python reads what they save.

exported_alone.py TRAIN_PROGRAM SERVE_PROGRAM
"""

import pathlib
import subprocess
import sys
import tempfile

from checks import check

try:
    import safetensors.torch
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

torch.set_num_threads(1)
torch.manual_seed(1)
train, serve = sys.argv[1:]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(1, 16)
        self.out = torch.nn.Linear(16, 1)
        self.out.weight = torch.nn.Parameter(self.hidden.weight.detach().T)  # shares memory in the file, not in the model
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("scale", torch.full((1,), 2.0), persistent=False)

    def forward(self, x):
        self.calls += 1
        return self.out(torch.tanh(self.hidden(x))) * self.scale


def close(a, b):
    return torch.allclose(a, b, rtol=1e-5, atol=1e-6)


model = Net()
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    program = torch.export.export(model, (torch.zeros(4, 1),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, folder / "model.pt2")
    model.calls.zero_()

    ran = subprocess.run([train, folder / "model.pt2", folder / "out"], capture_output=True, text=True)
    check(ran.returncode == 0, f"exported_train ended with {ran.returncode}:\n{ran.stderr}")
    x = torch.linspace(-1, 1, 64).reshape(64, 1)
    y = torch.sin(3 * x)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    expected = []
    for step in range(200):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            expected.append(loss.item())
    losses = [float(line.split()[-1]) for line in ran.stdout.splitlines()]
    check(len(losses) == len(expected), f"it printed:\n{ran.stdout}")
    for ours, theirs in zip(losses, expected):
        check(abs(ours - theirs) < 1e-4 * theirs, f"losses {losses}, expected {expected}")

    # Both files have the trained weights, and the buffers that the graph changed.
    weights = safetensors.torch.load_file(folder / "out" / "model.safetensors")
    check(sorted(weights) == sorted(model.state_dict()), f"{sorted(weights)}, expected {sorted(model.state_dict())}")
    back = torch.export.load(folder / "out" / "trained.pt2")
    for name, value in model.state_dict().items():
        check(close(weights[name], value), f"{name} is {weights[name]}, expected {value}")
        check(torch.equal(back.state_dict[name], weights[name]), f"{name} differs in trained.pt2")
    check(weights["calls"].item() == 200, f"{weights['calls']} calls")
    with torch.no_grad():
        check(close(back.module()(x), model(x)), "trained.pt2 gives other outputs")

    # A graph that counts its calls can't be served in evaluation mode, so this serves one that doesn't.
    inference = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    torch.export.save(torch.export.export(inference, (torch.zeros(4, 1),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)), folder / "serve.pt2")
    inference.eval()
    requests = [i / 8 for i in range(100)]
    ran = subprocess.run([serve, folder / "serve.pt2"], input=" ".join(map(str, requests)), capture_output=True, text=True)
    check(ran.returncode == 0, f"exported_serve ended with {ran.returncode}:\n{ran.stderr}")
    answers = torch.tensor([float(line.split()[1]) for line in ran.stdout.splitlines()])
    with torch.no_grad():
        check(close(answers, inference(torch.tensor(requests).reshape(-1, 1)).flatten()), "it gives other answers")
