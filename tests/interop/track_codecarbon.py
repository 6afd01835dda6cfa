"""track_codecarbon.py PROGRAM: CodeCarbon's own classes read the emissions.csv that PROGRAM (tracked.cpp) writes and compute the
same figures, and its tracker measures the same at the same time. NVML is a library built here, and RAPL a folder of files."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from checks import check

try:
    import pandas
    import psutil
    from codecarbon.core.config import get_hierarchical_config
    from codecarbon.core.cpu import IntelRAPL, TDP
    from codecarbon.core.emissions import Emissions
    from codecarbon.core.units import Energy, Time
    from codecarbon.core.util import detect_cpu_model
    from codecarbon.external.geography import CloudMetadata, GeoMetadata
    from codecarbon.external.logger import set_logger_level
    from codecarbon.external.ram import RAM
    from codecarbon.input import DataSource
    from codecarbon.output_methods.emissions_data import EmissionsData
    from codecarbon.output_methods.file import FileOutput
    import codecarbon
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

program = os.path.abspath(sys.argv[1])
source = Path(__file__).resolve().parent.parent.parent
data_dir = Path(codecarbon.__file__).parent / "data"
columns = list(EmissionsData.__dataclass_fields__)
root = Path(tempfile.mkdtemp(prefix="etude-codecarbon-"))
base = {name: value for name, value in os.environ.items() if not name.lower().startswith("codecarbon_")}
for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_JOBID"):
    base.pop(name, None)
base |= {"HOME": str(root), "ETUDE_SPOOL_DIR": str(root / "spool"), "OMP_NUM_THREADS": "1"}
quick = {"CODECARBON_MEASURE_POWER_SECS": "0.2", "CODECARBON_COUNTRY_ISO_CODE": "FRA"}


def close(a, b, relative=1e-9, absolute=0.0):
    return abs(a - b) <= max(relative * max(abs(a), abs(b)), absolute)


def folder(name):
    path = root / name
    path.mkdir()
    return path


def arguments(output, *extra):
    return [program, "--report_to", "codecarbon", "--output_dir", str(output), *extra]


def tracked(output, *extra, environment=None, fails=False, by=()):
    """The program's logs and its standard error."""
    done = subprocess.run([*by, *arguments(output, *extra)], cwd=root, text=True, capture_output=True,
                          env=base | quick | (environment or {}), timeout=120)
    check((done.returncode != 0) == fails, f"{extra} gave {done.returncode}: {done.stdout}\n{done.stderr}")
    logs = [json.loads(line.split(" ", 2)[2]) for line in done.stdout.splitlines() if line.startswith("log ")]
    return logs, done.stderr


def rows_of(path):
    """The rows as text; each must have all columns."""
    with open(path, newline="") as file:
        text = file.read()
    check("\r" not in text and text.endswith("\n"), "the lines end in LF")
    records = list(csv.reader(text.splitlines(keepends=True)))
    check(records[0] == columns, f"the header is {records[0]}")
    check(all(len(record) == len(columns) for record in records), "every row has all columns")
    return [dict(zip(columns, record)) for record in records[1:]]


def row_of(output):
    rows = rows_of(output / "emissions.csv")
    check(len(rows) == 1, f"{len(rows)} rows")
    return rows[0]


def official_row(output):
    """The file's only row as CodeCarbon's own class, read with pandas as CodeCarbon does."""
    frame = pandas.read_csv(output / "emissions.csv")
    check(list(frame.columns) == columns and len(frame) == 1, "what pandas reads")
    data = EmissionsData(**frame.iloc[0].to_dict())
    check(FileOutput("emissions.csv", str(output)).has_valid_headers(data), "has_valid_headers")
    return data


def geo(row):
    def said(name):
        value = getattr(row, name)
        return value if isinstance(value, str) else None

    return GeoMetadata(country_iso_code=said("country_iso_code"), country_name=said("country_name"), region=said("region"))


def figures():
    output = folder("figures")
    logs, reported = tracked(output, "--step_seconds", "0.15", "--log_level", "info",
                         environment={"CODECARBON_WUE": "1.5", "CODECARBON_PUE": "1.2"})
    data, row = official_row(output), row_of(output)
    expected = Emissions(DataSource()).get_private_infra_emissions(Energy.from_energy(data.energy_consumed), geo(data))
    check(close(data.emissions, expected), f"emissions {data.emissions}, recomputed {expected}")
    check(close(data.energy_consumed, data.cpu_energy + data.gpu_energy + data.ram_energy), "the sum of energies")
    check(close(data.emissions_rate, data.emissions / data.duration), "the rate")
    check(close(data.water_consumed, 1.5 * data.energy_consumed), "the water")
    check(close(data.ram_total_size, psutil.virtual_memory().total / 1024**3), "the memory's size")
    check(close(data.ram_power, 1.2 * RAM()._calculate_ram_power(data.ram_total_size)), "the memory's power")
    tdp = TDP().tdp
    check(1.2 * 0.0999 * tdp <= data.cpu_power <= 1.2001 * tdp, f"the CPU's power {data.cpu_power}, its TDP {tdp}")
    check(data.duration >= 8 * 0.15, "the duration")
    check(data.cpu_count == psutil.cpu_count() and data.cpu_model == detect_cpu_model(), "the CPU")
    import platform
    check(row["os"] == platform.platform(), f"the system is {row['os']}")
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", row["timestamp"]), "the time")
    check(row["project_name"] == "codecarbon" and row["tracking_mode"] == "machine", "names")
    check((data.pue, data.wue, row["on_cloud"], row["gpu_count"]) == (1.2, 1.5, "N", "0"), "settings")
    check(abs(data.ram_utilization_percent - psutil.virtual_memory().percent) < 20, "the memory in use")
    check(0 <= data.cpu_utilization_percent <= 100, f"the load: {data.cpu_utilization_percent}")
    with_emissions = [log for log in logs if "emissions_kg" in log]
    check(len(logs) == 9 and with_emissions == [logs[-1]] and "train_runtime" in logs[-1], f"the logs: {logs}")
    logged = logs[-1]["energy_consumed_kwh"]
    check(0.5 * data.energy_consumed < logged <= data.energy_consumed, "the energy in the log")
    check(close(logs[-1]["emissions_kg"] / logged, expected / data.energy_consumed), "the emissions in the log")
    check("etude: info: emissions: CPU by load" in reported and str(output / "emissions.csv") in reported, f"reported: {reported}")

    process = folder("process")
    tracked(process, environment={"CODECARBON_TRACKING_MODE": "process", "CODECARBON_FORCE_CPU_POWER": "100"})
    data = official_row(process)
    check(data.tracking_mode == "process" and data.cpu_power <= 100.01, "of the process")
    check(close(data.ram_power, RAM()._calculate_ram_power(0.5)), "the memory of the process")

    frame = pandas.read_csv(data_dir / "hardware" / "cpu_power.csv")
    with_table = folder("with_table")
    tracked(with_table, environment={"CODECARBON_DATA_DIR": str(data_dir)})
    check(0.0999 * tdp <= official_row(with_table).cpu_power <= 1.0001 * tdp, f"the TDP among {len(frame)}")


def places():
    listed = re.findall(r'\{"([A-Z]{3})", "([^"]*)", ([\d.]+)\}',
                        (source / "include/etude/integrations/codecarbon/national_intensities.hpp").read_text())
    mixes = DataSource().get_global_energy_mix_data()
    check(len(listed) == 78, f"{len(listed)} countries")
    for code, name, intensity in listed:
        check((mixes[code]["country_name"], mixes[code]["carbon_intensity"]) == (name, float(intensity)), f"{code} is {intensity}")

    def of(name, settings, with_data=True, **cloud):
        output = folder(name)
        given = {f"CODECARBON_{key.upper()}": value for key, value in settings.items()}
        if with_data:
            given["CODECARBON_DATA_DIR"] = str(data_dir)
        _, reported = tracked(output, environment={"CODECARBON_COUNTRY_ISO_CODE": ""} | given)
        data = official_row(output)
        emissions, energy = Emissions(DataSource()), Energy.from_energy(data.energy_consumed)
        expected = (emissions.get_cloud_emissions(energy, CloudMetadata(**cloud), geo(data)) if cloud
                    else emissions.get_private_infra_emissions(energy, geo(data)))
        check(close(data.emissions, expected), f"{settings}: {data.emissions}, and CodeCarbon has {expected}")
        return data, reported

    for number, (country, region) in enumerate([("ZWE", None), ("USA", "California"), ("CAN", "Quebec"), ("SWE", "SE3"),
                                                ("CHN", "Guangdong Province"), ("usa", None)]):
        settings = {"country_iso_code": country} | ({"region": region} if region else {})
        data, reported = of(f"place-{number}", settings)
        check("intensity" not in reported and "average" not in reported, f"{settings}: {reported}")
        check(data.country_name == mixes[country.upper()]["country_name"], "the country's name")
        check(region is None or data.region == region.lower(), "the region")
    data, reported = of("world", {}, with_data=False)
    check(close(data.emissions / data.energy_consumed, 0.475) and "the world's average" in reported, f"nowhere: {reported}")
    check(pandas.isna(data.country_name) and pandas.isna(data.country_iso_code), "no country is guessed")
    data, reported = of("unlisted", {"country_iso_code": "XYZ"}, with_data=False)
    check(close(data.emissions / data.energy_consumed, 0.475) and "XYZ isn't known" in reported, f"XYZ: {reported}")
    data, _ = of("cloud", {"cloud_provider": "gcp", "cloud_region": "europe-west9"}, provider="gcp", region="europe-west9")
    check((data.on_cloud, data.country_iso_code, data.cloud_region) == ("Y", "FRA", "europe-west9"), "the cloud")


def settings():
    here = folder("settings")
    (root / ".codecarbon.config").write_text("[codecarbon]\nproject_name = home\nexperiment_id = from home\npue = 1.1\nwue = 3\n")
    (here / ".codecarbon.config").write_text("# ours\n[other]\nwue=9\n[codecarbon]\nProject_Name: here\nexperiment_id = from here\n")
    environment = base | quick | {"CODECARBON_EXPERIMENT_ID": "variable", "codecarbon_output_file": "mine.csv"}
    subprocess.run(arguments(here), cwd=here, env=environment, check=True, capture_output=True)
    row = rows_of(here / "mine.csv")[0]
    before, place = dict(os.environ), os.getcwd()
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(here)
        official = get_hierarchical_config()
    finally:
        os.environ.clear()
        os.environ.update(before)
        os.chdir(place)
    check((row["project_name"], row["experiment_id"]) == (official["project_name"], official["experiment_id"]), "names")
    check((float(row["pue"]), float(row["wue"])) == (float(official["pue"]), float(official["wue"])), "pue, wue")
    (root / ".codecarbon.config").unlink()
    _, reported = tracked(folder("bad"), environment={"CODECARBON_PUE": "a lot"}, fails=True)
    check("CODECARBON_PUE is 'a lot': must be a number" in reported, f"reported: {reported}")
    _, reported = tracked(here / "mine.csv", fails=True)
    check("output_dir is" in reported, f"reported: {reported}")


official_program = """
import json, sys, time
from codecarbon import OfflineEmissionsTracker
tracker = OfflineEmissionsTracker(country_iso_code="FRA", output_dir=sys.argv[1], log_level="error", **json.loads(sys.argv[2]))
tracker.start()
print("started", flush=True)
sys.stdin.readline()
tracker.stop()
"""


def beside_the_official(output, environment, seconds, **options):
    """Rows of the official tracker and of ours, which measure at the same time and share a file."""
    environment = base | quick | environment
    official = subprocess.Popen([sys.executable, "-c", official_program, str(output), json.dumps(options)], cwd=root, text=True,
                                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        check("started" in iter(official.stdout.readline, "").__next__(), "the official tracker")
        subprocess.run(arguments(output, "--step_seconds", str(seconds / 8)), cwd=root, env=environment, check=True, capture_output=True)
        official.communicate("stop\n", timeout=60)
    finally:
        official.kill()
    check(not list(output.glob("*.bak")), "neither takes the other's file for a foreign one")
    rows = rows_of(output / "emissions.csv")
    check(len(rows) == 2, f"{len(rows)} rows")
    ours = [row for row in rows if "etude" in row["codecarbon_version"]][0]
    theirs = [row for row in rows if row is not ours][0]
    return theirs, ours


def beside():
    theirs, ours = beside_the_official(folder("beside"), {"CODECARBON_FORCE_CPU_POWER": "200", "CODECARBON_FORCE_RAM_POWER": "40",
                                                          "CODECARBON_MEASURE_POWER_SECS": "1"}, 6)
    shares = {name: (float(ours[name]) / float(ours["duration"])) / (float(theirs[name]) / float(theirs["duration"]))
              for name in ("ram_energy", "cpu_energy", "emissions")}
    print("  ours / theirs, in a second:", {name: round(share, 4) for name, share in shares.items()})
    check(abs(shares["ram_energy"] - 1) < 0.02 and abs(shares["cpu_energy"] - 1) < 0.15, f"{shares}")
    for name in ("country_name", "os", "cpu_count", "cpu_model", "gpu_count", "tracking_mode", "on_cloud", "experiment_id", "region"):
        check(theirs[name] == ours[name], f"{name}: {theirs[name]} and {ours[name]}")
    check(close(float(theirs["ram_total_size"]), float(ours["ram_total_size"])), "the memory's size")
    check(float(theirs["ram_energy"]) > 0 and float(ours["cpu_utilization_percent"]) > 0, "something was measured")


def appending():
    """Each tracker appends to the other's file, with no region in any row."""
    output = folder("appending")
    for _ in range(2):
        tracked(output)
    theirs = EmissionsData(**{name: None for name in columns} | {"run_id": "official", "duration": 1.0})
    FileOutput("emissions.csv", str(output)).out(theirs, theirs)
    tracked(output)
    rows = rows_of(output / "emissions.csv")
    check([row["run_id"] == "official" for row in rows] == [False, False, True, False], "the rows")
    check(len({row["run_id"] for row in rows}) == 4 and not list(output.glob("*.bak")), "four runs, no backup")
    check(len(pandas.read_csv(output / "emissions.csv")) == 4, "what pandas reads")

    old = folder("old")
    (old / "emissions.csv").write_text("timestamp,duration\n1,2\n")
    tracked(old)
    check((old / "emissions.csv.bak").read_text() == "timestamp,duration\n1,2\n", "the backup")
    row_of(old)


def sharing():
    """Four trainings and the official class, which doesn't use locks, write to one file at the same time."""
    output = folder("sharing")
    tracked(output)
    runs = [subprocess.Popen(arguments(output, "--step_seconds", "0.25"), cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env=base | quick | {"CODECARBON_MEASURE_POWER_SECS": "0.1"}) for _ in range(4)]
    time.sleep(0.5)
    theirs = FileOutput("emissions.csv", str(output))
    added = 0
    while any(run.poll() is None for run in runs):
        data = EmissionsData(**{name: None for name in columns} | {"run_id": f"official-{added}", "duration": 1.0})
        theirs.out(data, data)
        added += 1
        time.sleep(0.02)
    check(all(run.returncode == 0 for run in runs), "the trainings")
    rows = rows_of(output / "emissions.csv")
    ids = [row["run_id"] for row in rows]
    print(f"  {added} rows of the official class beside 4 trainings")
    check(len(ids) == len(set(ids)) == 5 + added and added > 10, f"{len(ids)} rows, {len(set(ids))} runs, {added} added")
    check(sorted(path.name for path in output.iterdir()) == ["emissions.csv"], "nothing else is left")


def killed():
    output = folder("killed")
    tracked(output)
    before = (output / "emissions.csv").read_bytes()
    run = subprocess.Popen(arguments(output, "--step_seconds", "0.2"), cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                           env=base | quick)
    for line in run.stdout:
        if line.startswith("log 6"):
            break
    run.send_signal(signal.SIGKILL)
    run.wait()
    rows = rows_of(output / "emissions.csv")
    check((output / "emissions.csv").read_bytes().startswith(before) and len(rows) == 2, "the other's row is as it was")
    check(0.6 < float(rows[1]["duration"]) < 3 and float(rows[1]["emissions"]) > 0, f"the row of the killed one: {rows[1]}")
    tracked(output)
    check(len(rows_of(output / "emissions.csv")) == 3 and not list(output.glob("*.bak")), "the next one goes on behind it")


def resumed():
    output = folder("resumed")
    _, reported = tracked(output, "--step_seconds", "0.1", "--save_strategy", "steps", "--save_steps", "3", "--fail_at", "5", fails=True)
    failed = row_of(output)
    check(float(failed["duration"]) >= 0.5, "the row of the failed one")
    logs, _ = tracked(output, "--step_seconds", "0.1", "--save_strategy", "steps", "--save_steps", "3", "--resume", "true")
    whole = row_of(output)
    check(whole["run_id"] == failed["run_id"], "the run goes on")
    check(float(whole["duration"]) >= float(failed["duration"]) + 0.5, "its time adds up")
    check(float(whole["energy_consumed"]) > float(failed["energy_consumed"]), "its energy adds up")
    check(0.5 * float(whole["emissions"]) < logs[-1]["emissions_kg"] <= float(whole["emissions"]), "the log has the sum")
    check(close(float(whole["ram_power"]), float(failed["ram_power"])), "powers are means")


def trials():
    output = folder("search")
    for name in ("run-0", "run-1"):
        tracked(output / name, "--trial", name, environment={"CODECARBON_OUTPUT_DIR": str(output)})
    frame = pandas.read_csv(output / "emissions.csv")
    check(list(frame.experiment_id) == ["run-0", "run-1"] and list(frame.project_name) == ["search"] * 2, f"names: {frame}")
    check(frame.run_id.nunique() == 2 and (frame.emissions > 0).all(), f"rows: {frame}")


def failed():
    output = folder("failed")
    logs, _ = tracked(output, "--fail_at", "3", fails=True)
    check(float(row_of(output)["emissions"]) > 0 and "emissions_kg" in logs[-1], f"a training that failed: {logs}")


class Counters(threading.Thread):
    """A RAPL folder: two packages and their subdomains; the first package's counter wraps around."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.begun, self.stops = path, time.time(), False
        self.domains = {"intel-rapl:0": ("package-0", 60e6, 410e6, 500_000_000), "intel-rapl:1": ("package-1", 30e6, 5e6, 10**11),
                        "intel-rapl:0:0": ("core", 50e6, 1e6, 10**11), "intel-rapl:2": ("psys", 200e6, 1e6, 10**11)}
        for name, (domain, _, _, end) in self.domains.items():
            (path / name).mkdir(parents=True)
            (path / name / "name").write_text(domain + "\n")
            (path / name / "max_energy_range_uj").write_text(f"{end}\n")
        self.put()

    def put(self):
        for name, (_, microwatts, first, end) in self.domains.items():
            value = int(first + microwatts * (time.time() - self.begun)) % end
            (self.path / name / ".next").write_text(f"{value}\n")
            (self.path / name / ".next").rename(self.path / name / "energy_uj")

    def run(self):
        while not self.stops:
            self.put()
            time.sleep(0.005)


def counters():
    tree = folder("powercap")
    thread = Counters(tree)
    thread.start()
    output = folder("rapl")
    theirs = IntelRAPL(rapl_dir=str(tree))
    theirs.start()
    begun = time.time()
    _, reported = tracked(output, "--step_seconds", "0.25", "--log_level", "info", environment={"CODECARBON_RAPL_DIR": str(tree)})
    details = theirs.get_cpu_details(Time.from_seconds(time.time() - begun))
    data = official_row(output)
    print("  RAPL: ours", round(data.cpu_power, 2), "W; the official class",
          round(sum(value for name, value in details.items() if "Power" in name), 2), "W; made 90 W")
    official = sum(value for name, value in details.items() if "Power" in name)
    check("RAPL (package-0, package-1)" in reported, f"reported: {reported}")
    check(abs(data.cpu_power / official - 1) < 0.05, f"{data.cpu_power} W, and the official class has {official}")
    check(abs(data.cpu_power / 90 - 1) < 0.03, f"{data.cpu_power} W of 90")
    check(close(data.emissions / data.energy_consumed, 0.056039), "the emissions")
    thread.stops = True
    thread.join()

    for name in thread.domains:
        (tree / name / "energy_uj").chmod(0)
    # Runs as root without the right to read everything, because another user can't reach this program.
    by = ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    output = folder("unreadable")
    _, reported = tracked(output, environment={"CODECARBON_RAPL_DIR": str(tree), "CODECARBON_FORCE_RAM_POWER": "10"}, by=by)
    check("energy_uj can't be read: only root may" in reported and "measured by its load instead" in reported, f"reported: {reported}")
    check(official_row(output).cpu_energy > 0, "the load counts in place of RAPL")


nvml = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return (double)t.tv_sec + (double)t.tv_nsec * 1e-9; }
static long of(void* d) { return (long)d - 1; }
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned f) { (void)f; return 0; }
int nvmlShutdown(void) { return 0; }
const char* nvmlErrorString(int e) { (void)e; return "fault"; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** d) { *d = (void*)(long)(i + 1); return 0; }
int nvmlDeviceGetName(void* d, char* s, unsigned n) { snprintf(s, n, of(d) < 2 ? "Fake A100" : "Fake K80"); return 0; }
int nvmlDeviceGetUUID(void* d, char* s, unsigned n) { snprintf(s, n, "GPU-%ld%ld%ld%ld", of(d), of(d), of(d), of(d)); return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void* d, unsigned long long* mj) {
  if (of(d) == 2) return 3;  /* too old a card: not supported */
  *mj = (unsigned long long)((now() - 1.7e9) * 1000 * (100 + 50 * (double)of(d)));
  return 0;
}
int nvmlDeviceGetPowerUsage(void* d, unsigned* mw) { *mw = (unsigned)(100 + 50 * of(d)) * 1000; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void* d, unsigned* mw) { (void)d; *mw = 300000; return 0; }
int nvmlDeviceGetUtilizationRates(void* d, unsigned* u) { u[0] = (unsigned)(30 + 10 * of(d)); u[1] = 5; return 0; }
int nvmlDeviceGetMemoryInfo(void* d, unsigned long long* m) { (void)d; m[0] = 1000; m[1] = 600; m[2] = 400; return 0; }
"""


def gpus():
    """Uses a library built here in place of NVIDIA's, which the official tracker also reads."""
    made = folder("nvml")
    (made / "nvml.c").write_text(nvml)
    compiler = os.environ.get("CC", "cc")
    try:
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made / "libnvidia-ml.so.1"), str(made / "nvml.c")], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"  not tried: no C compiler ({error})")
        return
    (made / "nvidia-smi").write_text("#!/bin/sh\n")
    (made / "nvidia-smi").chmod(0o755)
    environment = {"LD_LIBRARY_PATH": f"{made}:{base.get('LD_LIBRARY_PATH', '')}", "PATH": f"{made}:{base['PATH']}",
                   "CODECARBON_FORCE_CPU_POWER": "10", "CODECARBON_MEASURE_POWER_SECS": "1"}
    theirs, ours = beside_the_official(folder("gpus"), environment, 5)
    shares = [float(row["gpu_energy"]) / float(row["duration"]) * 3.6e6 for row in (theirs, ours)]
    print("  GPUs: ours", round(shares[1], 1), "W; theirs", round(shares[0], 1), "W; made 450 W")
    check(abs(shares[1] / shares[0] - 1) < 0.05 and abs(shares[1] / 450 - 1) < 0.03, f"{shares}")
    check((ours["gpu_count"], ours["gpu_model"]) == ("3", "2 x Fake A100, 1 x Fake K80"), ours["gpu_model"])
    check(theirs["gpu_count"] == "3" and close(float(ours["gpu_utilization_percent"]), 40), "the GPUs' load")

    for number, (given, watts, model) in enumerate([({"CODECARBON_GPU_IDS": "1"}, 150, "1 x Fake A100"),
                                                    ({"CODECARBON_GPU_IDS": "GPU-22"}, 200, "1 x Fake K80"),
                                                    ({"CUDA_VISIBLE_DEVICES": "0,2"}, 300, "1 x Fake A100, 1 x Fake K80"),
                                                    ({"CUDA_VISIBLE_DEVICES": "0", "CODECARBON_GPU_IDS": "0,1,9"}, 250, "2 x Fake A100")]):
        output = folder(f"gpus-{number}")
        _, reported = tracked(output, "--step_seconds", "0.1", environment=environment | given)
        data = official_row(output)
        check(abs(data.gpu_power / watts - 1) < 0.03 and data.gpu_model == model, f"{given}: {data.gpu_power} W, {data.gpu_model}")
        check(("GPU 9 doesn't exist" in reported) == (number == 3), f"reported: {reported}")


def main():
    set_logger_level("error")
    print("codecarbon", codecarbon.__version__, "with", len(columns), "columns")
    check(len(columns) == 38, "another version of CodeCarbon has other columns")
    wanted = sys.argv[2:]
    for test in (figures, places, settings, beside, appending, sharing, killed, resumed, trials, failed, counters, gpus):
        if wanted and test.__name__ not in wanted:
            continue
        begun = time.time()
        test()
        print(f"{test.__name__}: {time.time() - begun:.1f} s", flush=True)


try:
    main()
finally:
    import shutil
    shutil.rmtree(root, ignore_errors=True)
