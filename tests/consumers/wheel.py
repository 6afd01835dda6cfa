#!/usr/bin/env python3
"""wheel.py FOLDER PYTHON: builds the wheel for the torch of that Python, installs it into a new environment in FOLDER, and uses it there: the
program, its Python tools, and projects in C++, C and Fortran that find the libraries. CXX names the C++ compiler."""

import email.parser
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Libraries that any machine with Python and torch has.
PROVIDED = re.compile(r"^(linux-vdso|(/lib(64)?/)?ld-linux-[a-z0-9-]+|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so")
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(etude {version} REQUIRED {components})
add_executable(first {first})
target_link_libraries(first PRIVATE etude::etude)
add_library(headers OBJECT EXCLUDE_FROM_ALL headers.cpp)
target_link_libraries(headers PRIVATE etude::trackers etude::csv etude::images etude::exported etude::parallel etude::report etude::search etude::study)
"""


def run(*command, status=0, environment=None, **options):
    """The output of a command, both streams together, which must exit with the given status."""
    done = subprocess.run(
        [str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, **options
    )
    if done.returncode != status:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, command))}: exited with {done.returncode}, should have with {status}")
    return done.stdout


def check(holds, *what):
    if not holds:
        sys.exit("\n".join(map(str, what)))


def built_wheel(folder, python):
    started = time.monotonic()
    run(python, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--wheel-dir", folder / "dist", ROOT)
    (wheel,) = (folder / "dist").glob("*.whl")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, built in {time.monotonic() - started:.0f} s")
    return wheel


def environment_of(folder, python, torch):
    """A new environment that has this torch and, through a path file, what torch itself needs."""
    run(python, "-m", "venv", "--without-pip", folder / "venv")
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "torch").symlink_to(torch)
    (packages / "needs_of_torch.pth").write_text(f"{torch.parent}\n")
    return folder / "venv" / "bin", packages


def check_wheel(wheel, torch_version):
    check(wheel.name.endswith(f"-py3-none-linux_{platform.machine()}.whl"), f"{wheel.name} should be for every Python 3")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = email.parser.Parser().parsestr(archive.read(metadata).decode())
        licences = [name for name in names if "/licenses/" in name]
    check(f"torch=={torch_version}" in fields.get_all("Requires-Dist"), "the wheel should require its torch:", *fields.get_all("Requires-Dist"))
    expected = (ROOT / "include" / "etude" / "version.hpp").read_text()
    number = int(re.search(r"#define ETUDE_VERSION (\d+)", expected)[1])
    check(fields["Version"] == f"{number // 10000}.{number // 100 % 100}.{number % 100}", f"wrong version: {fields['Version']}")
    for library in ("libcurl", "libzip", "libcsv", "libboost", "nlohmann"):
        check(any(f"/licenses/{library}" in name for name in licences), f"no licence of {library} among", *licences)
    check(any(name.endswith("sboms/etude.spdx.json") for name in names), "the wheel should have the bill of materials")
    return fields["Version"]


def check_libraries(package, packages, torch):
    """Every library that the program loads is in the environment, or on any machine that runs torch."""
    for binary in [package / "bin" / "etude", *(package / "lib").glob("*.so*")]:
        lines = run("ldd", binary).strip().splitlines()
        for line in lines:
            name, _, rest = line.strip().partition(" => ")
            path = rest.partition(" (")[0]
            inside = path.startswith((str(packages), str(torch)))
            check(inside or PROVIDED.match(name), f"{binary} should load {name} from the environment: {line.strip()}")
        check(sum("libgomp" in line for line in lines) <= 1, f"{binary} should load one OpenMP:", *lines)


def check_program(bin_folder, version, torch_version, folder):
    etude = bin_folder / "etude"
    check(run(etude, "--version").startswith(f"etude {version} (LibTorch {torch_version}"), "wrong version:", run(etude, "--version"))
    check("seed" in run(etude, "describe", "seed"), "etude describe seed should describe it")
    # The package passes on the program's exit statuses and messages.
    check("nowhere" in run(etude, "inspect", folder / "nowhere", status=3), "etude inspect should name what is missing")
    python = bin_folder / "python"
    check(run(python, "-m", "etude", "--version") == run(etude, "--version"), "python -m etude should be the program")
    check("--pretrained" in run(etude, "export", "--help"), "etude export should be the Python tool")
    check("--pretrained" in run(python, "-m", "etude.export", "--help"), "etude.export should be the Python tool")
    check("--tokenizer" in run(etude, "prepare", "--help"), "etude prepare should be the Python tool")
    run(python, "-c", "import etude, sys; assert 'torch' not in sys.modules and etude.__version__")


def check_training(bin_folder, folder):
    """The program trains, and so does the Python package, which runs it."""
    torch_of_model = ROOT / "tests" / "model" / "linear_by_torch_2_13.pt2"  # three numbers in, two out
    rows = [f"{i % 5},{i % 3},{i % 2},{i % 2}" for i in range(60)]
    (folder / "train.csv").write_text("\n".join(["a,b,c,label", *rows]) + "\n")
    started = time.monotonic()
    arguments = ["--model", torch_of_model, "--loss", "cross_entropy", "--train_dataset", folder / "train.csv"]
    run(bin_folder / "etude", "train", *arguments, "--max_steps", "1", "--output_dir", folder / "trained")
    print(f"etude train: one step in {time.monotonic() - started:.1f} s")
    check((folder / "trained" / "model.safetensors").exists(), "etude train should save the weights")
    program = f"""if True:
        from etude import Trainer, TrainingArguments
        args = TrainingArguments(output_dir="notebook", num_train_epochs=20, learning_rate=0.1, logging_steps=10)
        trainer = Trainer("{torch_of_model}", args, train_dataset="train.csv", eval_dataset="train.csv", loss="cross_entropy", compute_metrics=["accuracy"])
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert losses[-1] < losses[0] / 2, losses
        assert trainer.evaluate()["eval_accuracy"] == 1
        """
    said = run(bin_folder / "python", "-c", program, cwd=folder)
    check("train" in said and "100%" in said, "the Trainer should show its progress:", said)


def check_torches(bin_folder, packages, torch, torch_version, folder):
    etude = bin_folder / "etude"
    other = folder / "other" / "torch"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "version.py").write_text("__version__ = '2.5.1+cpu'\n")
    refusal = run(etude, "describe", "seed", status=2, environment={"PYTHONPATH": str(other.parent)})
    check(refusal.count("\n") == 1 and "2.5.1+cpu" in refusal and f"torch=={torch_version}" in refusal, "wrong refusal of another torch:", refusal)
    # In another folder of packages, such as the user's.
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "torch").symlink_to(torch)
    (packages / "torch").rename(packages / "hidden")
    (packages / "needs_of_torch.pth").rename(packages / "hidden.txt")
    refusal = run(etude, "describe", "seed", status=2)
    check(refusal.count("\n") == 1 and f"pip install torch=={torch_version}" in refusal, "wrong refusal without a torch:", refusal)
    run(etude, "describe", "seed", environment={"PYTHONPATH": str(elsewhere)})
    (packages / "hidden").rename(packages / "torch")
    (packages / "hidden.txt").rename(packages / "needs_of_torch.pth")


def check_project(bin_folder, package, version, torch_version, torch, folder):
    prefix = run(bin_folder / "etude", "--cmake-prefix").strip()
    check(prefix == str(package), f"etude --cmake-prefix should be {package}, is {prefix}")
    project = folder / "project"
    project.mkdir()
    headers = sorted(path.relative_to(package / "include").as_posix() for path in (package / "include" / "etude").rglob("*.hpp"))
    lines = [f"#include <{header}>" for header in headers if header != "etude/libtorch/cuda_graph.hpp"]  # it needs CUDA's toolkit
    (project / "headers.cpp").write_text("\n".join(lines) + "\n")
    short = version.rpartition(".")[0]

    def configure(components, *arguments, status=0):
        (project / "CMakeLists.txt").write_text(PROJECT.format(version=short, components=components, first=ROOT / "examples" / "first.cpp"))
        shutil.rmtree(project / "build", ignore_errors=True)
        launcher = f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache') or ''}"
        # Keeps CMake from finding another Python's torch by chance.
        return run(
            "cmake", "-S", project, "-B", project / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DCMAKE_PREFIX_PATH={prefix}", launcher, *arguments,
            status=status, environment={"PATH": f"{bin_folder}:{os.environ['PATH']}"},
        )  # fmt: skip

    said = configure("COMPONENTS tensorbord", status=1)
    check("There is no component 'tensorbord'; must be one of core, pages" in " ".join(said.split()), "wrong refusal of a component:", said)
    fake = folder / "fake"
    fake.mkdir()
    (fake / "TorchConfig.cmake").write_text("add_library(torch INTERFACE IMPORTED)\n")
    (fake / "TorchConfigVersion.cmake").write_text('set(PACKAGE_VERSION 2.5.1)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n')
    said = " ".join(configure("", f"-DTorch_DIR={fake}", status=1).split())
    check(f"is 2.5.1, but this etude {version} was built with {torch_version}: pip install torch=={torch_version}" in said, "wrong refusal of another torch:", said)

    configure("COMPONENTS etude trackers csv png images exported pch OPTIONAL_COMPONENTS parallel search")
    started = time.monotonic()
    run("cmake", "--build", project / "build", "--target", "first")
    print(f"the tutorial's program: built in {time.monotonic() - started:.0f} s")
    said = run(project / "build" / "first", cwd=project, environment={"OMP_NUM_THREADS": "1"})
    check(re.search(r"1500 steps, accuracy 0\.9", said), "the tutorial's program should have learned:", said)
    # Every header finds what it includes within the wheel and torch. ccache wouldn't notice a header that has been added before another.
    commands = json.loads((project / "build" / "compile_commands.json").read_text())
    (command,) = (shlex.split(entry["command"]) for entry in commands if entry["file"].endswith("headers.cpp"))
    command = [word for word in command if word != shutil.which("ccache")]
    command[command.index("-o") + 1] = project / "read"
    run(*command, "-M", cwd=project / "build")
    read = (project / "read").read_text()
    read = read.replace("\\\n", " ").split()
    system = re.compile(r"\b(boost|nlohmann|fmt|protozero|xxhash\.h|zip\.h|zipconf\.h|png\.h|csv\.h)\b")
    check(any("boost/hana" in path for path in read), "the compiler should say what the headers include:", *read[:5])
    inside = tuple(os.path.realpath(folder) for folder in (package, torch))
    stray = [path for path in read if system.search(path) and not os.path.realpath(path).startswith(inside)]
    check(not stray, "headers of the system are used, and so are missing in the wheel:", *stray)


def check_c_interface(bin_folder, package, folder):
    """Programs in C and Fortran find the interface with pkg-config, and projects without C++ find it with CMake."""
    source = HERE / "c_interface"
    model = ROOT / "tests" / "model" / "linear_by_torch_2_13.pt2"
    environment = {"PKG_CONFIG_PATH": run(bin_folder / "etude", "--pkg-config").strip()}
    languages = [("C", "c", "etude-c", "cc"), ("Fortran", "f90", "etude-fortran", shutil.which("gfortran"))]
    for language, suffix, name, compiler in languages:
        if compiler:
            flags = run("pkg-config", "--cflags", "--libs", name, environment=environment).split()
            run(compiler, source / f"program.{suffix}", *flags, "-o", folder / "fit", cwd=folder)
            check(f"fitted in {language}" in run(folder / "fit", model, cwd=folder), f"a program in {language} should have trained")
    has_fortran = "ON" if languages[1][3] else "OFF"
    build = folder / "project_in_c"
    run("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={package}", f"-DWITH_FORTRAN={has_fortran}", "-DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON")
    run("cmake", "--build", build)
    check("fitted in C" in run(build / "in_c", model, cwd=folder), "a project in C should have trained")
    if has_fortran == "ON":
        check("fitted in Fortran" in run(build / "in_fortran", model, cwd=folder), "a project in Fortran should have trained")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    # Doesn't resolve links, since an environment's Python is a link to another.
    python = pathlib.Path(sys.argv[2]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    located = run(python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])", cwd="/").strip()
    torch = pathlib.Path(located)
    torch_version = re.search(r"__version__ = '([^'+]+)", (torch / "version.py").read_text())[1]
    wheel = built_wheel(folder, python)
    version = check_wheel(wheel, torch_version)
    bin_folder, packages = environment_of(folder, python, torch)
    started = time.monotonic()
    run(python, "-m", "pip", "--disable-pip-version-check", "--python", bin_folder / "python", "install", "--no-index", "--no-deps", wheel)
    print(f"installed in {time.monotonic() - started:.0f} s")
    package = packages / "etude"
    check_libraries(package, packages, torch)
    check_program(bin_folder, version, torch_version, folder)
    check_training(bin_folder, folder)
    check_torches(bin_folder, packages, torch, torch_version, folder)
    check_project(bin_folder, package, version, torch_version, torch, folder)
    check_c_interface(bin_folder, package, folder)
    print("the wheel works")


if __name__ == "__main__":
    main()
