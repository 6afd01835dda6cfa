"""The examples transfer and loops/transfer train the same backbone, which this script makes: their losses are the same, and
Python loads the result.

Usage: transfer.py PATH_OF_transfer PATH_OF_loops_transfer DIGITS
"""

import os
import re
import subprocess
import sys
import tempfile

from checks import check

try:
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TRANSFER, LOOP, DIGITS = sys.argv[1:]


def backbone():
    """Learns whether a digit is odd."""
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 32), torch.nn.Tanh())
    head = torch.nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(body(pixels)), digits % 2).backward()
        optimizer.step()
    return body


class Net(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.backbone = body
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.backbone(x))


def run(program, *arguments):
    ran = subprocess.run([program, *arguments, "backbone.pt"], cwd=folder, capture_output=True, text=True,
                         env=dict(os.environ, OMP_NUM_THREADS="1"))
    check(ran.returncode == 0, ran.stderr)
    losses = [float(loss) for loss in re.findall(r"^epoch \d+ loss ([0-9.]+)$", ran.stdout, re.MULTILINE)]
    return losses, float(re.search(r"^accuracy ([0-9.]+)$", ran.stdout, re.MULTILINE)[1]), ran.stdout


table = torch.tensor([[float(number) for number in line.split(",")] for line in open(DIGITS)])
pixels, digits = table[:, :64] / 16, table[:, 64].long()
with tempfile.TemporaryDirectory() as folder:
    body = backbone()
    torch.jit.script(body).save(f"{folder}/backbone.pt")
    ours, accuracy, printed = run(TRANSFER, "--backbone")
    theirs, their_accuracy, _ = run(LOOP)
    check(len(ours) == 8 and len(theirs) == 8, f"eight epochs each: {ours}, {theirs}")
    check(all(abs(a - b) < 2e-5 for a, b in zip(ours, theirs)), f"the losses are {ours} and, by hand, {theirs}")
    check(accuracy > 0.85 and abs(accuracy - their_accuracy) < 0.01, f"the accuracies are {accuracy}, {their_accuracy}")
    # The rates of the last table: the head's, and two layers below it.
    for rate in ("0.004", "0.002", "0.001"):
        check(re.search(rf"\s{re.escape(rate)}\s", printed), f"no group has the learning rate {rate}:\n{printed}")

    before = {f"backbone.{name}": tensor.clone() for name, tensor in body.state_dict().items()}
    results = {"safetensors": load_file(f"{folder}/transferred/model.safetensors"),
               "pt": dict(torch.load(f"{folder}/transferred.pt", weights_only=False))}
    for name, state in results.items():
        net = Net(backbone())
        net.load_state_dict(state)
        check(all(not torch.equal(state[key], old) for key, old in before.items()), f"{name}: the backbone wasn't trained")
        with torch.no_grad():
            found = (net(pixels).argmax(1) == digits).double().mean().item()
        check(found > 0.85, f"{name}: in Python, {found} of the digits are right")
    print(f"accuracy {accuracy}, by hand {their_accuracy}; losses {ours}")
