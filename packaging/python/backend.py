"""The build backend of pyproject.toml: scikit-build-core's, which compiles Etude for the torch of the Python that pip installs into.

pip hides that torch from the build, so a torch among the build requirements would be a different one. This backend finds it
nevertheless; only if there is none does the build get the newest torch.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

import scikit_build_core.build as skbuild
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCATE = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
state = "wheel"


def find_torch():
    """The folder of torch, found without importing it, or None."""
    spec = importlib.util.find_spec("torch")
    if spec:
        return pathlib.Path(spec.submodule_search_locations[0])
    # pip hides the packages with variables, which -E ignores; python -m build uses an environment, which sets no variables.
    found = subprocess.run([sys.executable, "-E", "-c", LOCATE], cwd="/", check=True, capture_output=True, text=True).stdout.strip()
    return pathlib.Path(found) if found else None


def require_torch():
    """The folder of torch, and its version without a suffix such as +cpu."""
    folder = find_torch()
    if not folder:
        raise SystemExit("etude is built for an installed torch, and none is found: pip install torch")
    config = folder / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    if not config.exists():
        raise SystemExit(f"etude can't be built with the torch in {folder}, which has no share/cmake/Torch: use a wheel of torch")
    version = re.search(r"""^__version__ = ["']([^"'+]+)""", (folder / "version.py").read_text(), re.M)
    return folder, version[1]


def etude_version():
    number = int(re.search(r"^#define ETUDE_VERSION (\d+)$", (ROOT / "include" / "etude" / "version.hpp").read_text(), re.M)[1])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def get_requires_for_build_wheel(config_settings=None):
    return skbuild.get_requires_for_build_wheel(config_settings) + ([] if find_torch() else ["torch"])


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return skbuild.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder, version = require_torch()
    settings = {
        "cmake.define.Torch_DIR": str(folder / "share" / "cmake" / "Torch"),
        "cmake.define.ETUDE_WHEEL_TORCH": version,
        **(config_settings or {}),
    }
    return skbuild.build_wheel(wheel_directory, settings, metadata_directory)


# The hooks of scikit-build-core's dynamic metadata.
def build_state(value):
    global state
    state = value


def dynamic_wheel(settings):
    return {"dependencies": True}


def dynamic_metadata(settings, project):
    requirement = "torch" if state == "sdist" else f"torch=={require_torch()[1]}"
    return {"version": etude_version(), "dependencies": [requirement]}
