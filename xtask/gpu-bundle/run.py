"""run.sh SUITE [--limit SECONDS]: runs a suite of this bundle on a machine with GPUs.

Each test is a process of its own, since a fault on a device spoils the process that meets it. Every process has a
limit, and so has the whole. Results go to the folder $OUT (./results without), one file per suite; a short table comes last.
Ends with 0 only if everything ran and passed. `suites.json` says what belongs to a suite.
"""

import argparse
import concurrent.futures
import datetime
import glob
import json
import os
import pathlib
import platform
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Of `all`, in this order; `smoke` is a part of the first.
WHOLE = ["device", "ranks", "ports", "plans", "examples", "torch", "bench", "sanitize"]
# Characters of output that a result keeps: the end of it.
KEPT = 6000
# What a test needs to end and be counted, of the whole's limit.
RESERVE = 3.0


class Job:
    """A process to run: how, with how many GPUs, how long, how many at once."""

    def __init__(self, name, command, rule):
        self.name, self.command = name, command
        self.gpus, self.seconds = rule.get("gpus", 1), rule["seconds"]
        self.at_once = rule.get("at_once", 1)
        self.is_test = False
        self.variables = {}


def tests_in_bundle():
    """Names of the tests that need a GPU."""
    listed = [HERE / "bin" / "gpu", "--list", "--ignored", "--format", "terse"]
    output = subprocess.run(listed, capture_output=True, text=True, check=True, timeout=60).stdout
    return [line.removesuffix(": test") for line in output.splitlines() if line.endswith(": test")]


def find_sanitizer():
    toolkits = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]
    places = [shutil.which("compute-sanitizer")]
    places += [f"{toolkit}/{part}/compute-sanitizer" for toolkit in toolkits for part in ("bin", "compute-sanitizer")]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def jobs_of(suite, names, places):
    """Groups of jobs; those of a group may run at the same time. A job without command is a failure by itself.

    `places` says what stands for the names in braces of a command.
    """
    sanitizer = find_sanitizer() if "tools" in suite else None
    for rule in suite.get("tests", []):
        group = []
        for name in (name for name in names if name.startswith(rule["match"])):
            # One thread would print the test's name in front of its output.
            command = [str(HERE / "bin" / "gpu"), "--exact", name, "--ignored", "--nocapture", "--test-threads=2"]
            for tool in rule.get("tools", suite.get("tools", [None])):
                job = Job(name if tool is None else f"{tool} {name}", command, rule)
                job.is_test = True
                if tool is not None:
                    job.variables["GPU_TESTS_UNDER"] = tool
                    # Ranks are processes that the test starts.
                    options = ["--tool", tool, "--target-processes", "all", "--error-exitcode", "99", "--print-limit", "10"]
                    job.command = [sanitizer, *options, *command] if sanitizer else None
                group.append(job)
        yield group
    for rule in suite.get("commands", []):
        words = [word.format_map(places) for word in rule["command"].split()]
        yield [Job(rule.get("name", rule["command"]), words, rule)]


def run(job, devices, end):
    """Runs a job on the given devices; gives its record."""
    record = {"name": job.name, "outcome": "not run", "seconds": 0.0}
    left = end - time.monotonic() - RESERVE
    if job.command is None:
        return record | {"outcome": "failed", "output": "there is no compute-sanitizer"}
    if devices is None:
        return record | {"outcome": "skipped", "output": f"needs {job.gpus} GPUs"}
    if left <= 0:
        return record | {"output": "the limit of the whole run has passed"}
    variables = os.environ | job.variables | {
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        "WARPWAY_CACHE_DIR": str(HERE / "cache"),
        "CARGO_BIN_EXE_rank": str(HERE / "bin" / "rank"),
    }
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(job.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env=variables, start_new_session=True)
        limit = min(job.seconds, left)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        # Also what the process has started and left.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        record["seconds"] = round(time.monotonic() - begin, 2)
        output.seek(0)
        text = output.read().decode(errors="replace")
    record["figures"] = figures_in(text)
    skipped = next((line for line in text.splitlines() if line.startswith("skipped: ")), None)
    if status is None:
        record |= {"outcome": "timeout", "output": f"killed after {limit:.0f} s\n{text[-KEPT:]}"}
    elif status != 0 or (job.is_test and "test result: ok. 1 passed" not in text):
        record |= {"outcome": "failed", "output": f"ended with {status}\n{text[-KEPT:]}"}
    elif skipped:
        record |= {"outcome": "skipped", "output": skipped}
    else:
        record["outcome"] = "passed"
    return record


def figures_in(text):
    """Lines that are JSON objects are figures."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def run_group(group, devices, end):
    if not group:
        return []
    needed = group[0].gpus
    if len(devices) < needed:
        return [run(job, None, end) for job in group]
    # One GPU each: taken in turns. More: all of them.
    slots = queue.Queue()
    at_once = group[0].at_once
    for slot in range(at_once):
        slots.put([devices[slot % len(devices)]] if needed == 1 else devices)

    def on_slot(job):
        slot = slots.get()
        try:
            record = run(job, slot, end)
        finally:
            slots.put(slot)
        print(f"{record['outcome']:8} {record['seconds']:7.2f} s  {job.name}", flush=True)
        return record

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(on_slot, group))


def query_gpus():
    """Rows of nvidia-smi, of the visible devices; none without a driver."""
    fields = ["index", "name", "driver_version", "memory.total", "uuid"]
    try:
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [dict(zip(fields, (cell.strip() for cell in line.split(",")))) for line in output.splitlines()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return rows
    return [row for row in rows if row["index"] in visible.split(",") or row["uuid"] in visible.split(",")]


def describe_machine(gpus):
    cpu = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "gpus": [row["name"] for row in gpus],
        "driver": gpus[0]["driver_version"] if gpus else None,
    }


def write(path, head, records):
    """One record per line, so that two files can be compared by eye."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    rows = ",\n".join("    " + json.dumps(record) for record in records)
    path.write_text("{\n" + "\n".join(lines) + '\n  "tests": [\n' + rows + "\n  ]\n}\n")


def main():
    suites = json.loads((HERE / "suites.json").read_text())
    parser = argparse.ArgumentParser(prog="run.sh", description="Tests and benchmarks on GPUs.")
    parser.add_argument("suite", choices=[*suites, "all"])
    parser.add_argument("--limit", type=float, default=540, metavar="SECONDS", help="of the whole (540)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only what has this in its name")
    arguments = parser.parse_args()

    begin = time.monotonic()
    end = begin + arguments.limit
    out = pathlib.Path(os.environ.get("OUT", "results"))
    out.mkdir(parents=True, exist_ok=True)
    origin = json.loads((HERE / "origin.json").read_text())
    gpus = query_gpus()
    machine = describe_machine(gpus)
    names = tests_in_bundle()

    places = {
        "warpway": HERE / "bin" / "warpway",
        "channels": HERE / "bin" / "gpu_channels",
        "gather": HERE / "bin" / "gpu_all_gather",
        "python": sys.executable,
        "torch": HERE / "torch_tensors.py",
        "foreign": HERE / "bin" / "libwarpway_foreign.so",
        "out": out.resolve(),
        "commit": origin["commit"],
    }
    rows, bad = [], []
    for suite in WHOLE if arguments.suite == "all" else [arguments.suite]:
        started = time.monotonic()
        head = {
            "version": 1,
            "suite": suite,
            "command": " ".join(["run.sh", *sys.argv[1:]]),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **origin_fields(origin),
            "machine": machine,
        }
        records = []
        for group in jobs_of(suites[suite], names, places):
            chosen = [job for job in group if arguments.only in job.name]
            records += run_group(chosen, [row["index"] for row in gpus], end)
        seconds = time.monotonic() - started
        write(out / f"gpu_{suite}.json", head | {"seconds": round(seconds, 1)}, records)
        counts = {key: sum(record["outcome"] == key for record in records)
                  for key in ("passed", "failed", "timeout", "skipped", "not run")}
        rows.append([suite, *counts.values(), f"{seconds:.1f}"])
        bad += [record for record in records if record["outcome"] in ("failed", "timeout", "not run")]

    for record in bad:
        print(f"\n---- {record['outcome']}: {record['name']}\n{record.get('output', '')[-1500:].strip()}")
    print()
    for row in [["suite", "passed", "failed", "timeout", "skipped", "not run", "seconds"], *rows]:
        print(f"{row[0]:16}" + "".join(f"{cell:>9}" for cell in row[1:]))
    for record in bad[:20]:
        print(f"{record['outcome']}: {record['name']}")
    print(f"{len(gpus)} x {machine['gpus'][0] if gpus else 'no GPU'}, driver {machine['driver']}, commit "
          f"{origin['commit'][:12]}{' (modified)' if origin['modified'] else ''}, {origin['profile']}, "
          f"{time.monotonic() - begin:.1f} s, {sum(sum(row[1:6]) for row in rows)} jobs")
    ran = sum(row[1] for row in rows)
    return 1 if bad or not gpus or ran == 0 else 0


def origin_fields(origin):
    return {"commit": origin["commit"], "modified": origin["modified"], "packed": origin["date"],
            "profile": origin["profile"], "compiler": origin["compiler"]}


if __name__ == "__main__":
    sys.exit(main())
