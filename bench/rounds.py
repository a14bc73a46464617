"""What the comparisons with PyTorch share: nets and batches, PyTorch's settings, rounds in which
the contenders take turns, ratios within a round, and tables.

A comparison has an object with `names(case)`, the contenders, and `run(name, case, steps)`, which
runs one of them in a fresh process and returns what it measured: at least step_seconds and
peak_rss_bytes. A contender that is run in both layouts is named "setting/layout".
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKER = os.path.join(ROOT, "bench", "torch_nets.py")
PYTHON = "/usr/bin/python3"  # Debian's: the one python3-torch installs for, whatever PATH says
LIBRARIES = "/usr/lib/*-linux-gnu*"
MALLOC_CONF = ("oversize_threshold:1,background_thread:true,metadata_thp:auto,"
               "dirty_decay_ms:-1,muzzy_decay_ms:-1")
LAYOUTS = ("nchw", "channels_last")
VECTOR_NETS = ("cd-dnn", "mlp")  # no images, so no second layout
CLEARLY_SLOWER = 1.15


@dataclass
class Case:
    net: str
    batch: int
    steps: int  # per process; about ten seconds of work on two cores at 100 GFLOP/s each

    @property
    def layouts(self):
        return LAYOUTS[:1] if self.net in VECTOR_NETS else LAYOUTS


DEFAULTS = [Case("resnet-50", 32, 3), Case("vgg-a", 32, 3), Case("alexnet", 64, 6),
            Case("resnet-20", 128, 12), Case("lenet", 64, 200)]
OTHERS = {"caffenet": (64, 6), "overfeat-fast": (32, 4), "vgg-16": (16, 2),
          "googlenet-bn": (32, 4), "resnet-18": (32, 4), "resnet-32": (128, 8),
          "resnet-56": (128, 5), "mobilenet-v1": (32, 6), "cd-dnn": (256, 8), "mlp": (128, 200)}


@dataclass
class Runs:
    """What one contender measured for a net: round → result."""
    rounds: dict = field(default_factory=dict)

    def median(self, key="step_seconds"):
        return statistics.median(run[key] for run in self.rounds.values())


def parse_case(text):
    known = {case.net: (case.batch, case.steps) for case in DEFAULTS} | OTHERS
    net, _, batch = text.partition(":")
    if net not in known:
        raise SystemExit(f"unknown net '{net}'; there are: {', '.join(known)}")
    if batch and not (batch.isdigit() and int(batch) > 0):
        raise SystemExit(f"'{text}': after the colon stands the batch, a number above 0")
    return Case(net, int(batch) if batch else known[net][0], known[net][1])


# ---- Running a contender ------------------------------------------------------------------------


def first_file(*patterns):
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return found[0] if found else None


def tuned_environment():
    """Settings and the packages they need; what is missing is said, not passed over."""
    environment, missing = {}, []
    jemalloc = first_file(f"{LIBRARIES}/libjemalloc.so.2")
    if jemalloc:
        environment |= {"LD_PRELOAD": jemalloc, "MALLOC_CONF": MALLOC_CONF}
    else:
        missing.append("libjemalloc2")
    # PyTorch multiplies matrices with whatever libblas.so.3 is: the reference one is many times
    # slower, and OpenBLAS with OpenMP shares PyTorch's threads instead of starting its own.
    blas = first_file(f"{LIBRARIES}/openblas-openmp/libblas.so.3")
    if blas:
        environment["LD_LIBRARY_PATH"] = os.path.dirname(blas)
    else:
        missing.append("libopenblas0-openmp")
    return environment, missing


def run_json(command, environment, what):
    """Runs a program that prints one JSON object as its last line."""
    done = subprocess.run(command, env=os.environ | environment, cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{what} failed (exit {done.returncode}): {' '.join(command)}\n"
                         f"{done.stderr.strip()}")
    try:
        text = done.stdout
        return json.loads(text[text.index("{"):text.rindex("}") + 1])
    except ValueError as error:
        raise SystemExit(f"{what} printed no JSON object: {' '.join(command)}\n"
                         f"{done.stdout.strip()}") from error


# ---- Rounds --------------------------------------------------------------------------------------


def say(text):
    print(text, file=sys.stderr, flush=True)


def measure(case, contenders, args):
    """Rounds of all contenders in turn, until there are enough or the time is up."""
    steps = args.steps or (max(2, case.steps // 4) if args.quick else case.steps)
    names = contenders.names(case)
    runs = {name: Runs() for name in names}
    start = time.monotonic()
    for number in range(args.rounds):
        begun = time.monotonic()
        for name in names:
            result = contenders.run(name, case, steps)
            runs[name].rounds[number] = result
            say(f"  {case.net} b{case.batch} round {number + 1}/{args.rounds} {name:20} "
                f"{result['step_seconds'] * 1e3:10.1f} ms/step "
                f"{result['peak_rss_bytes'] / 2**20:8.0f} MiB")
        now = time.monotonic()
        if args.time_budget and now + (now - begun) - start > args.time_budget:
            if number + 1 < args.rounds:
                say(f"  {case.net}: stopped after {number + 1} rounds, time budget "
                    f"{args.time_budget:g} s")
            break
        names = [name for name in names if not clearly_slower(name, runs)]
    return runs


def clearly_slower(name, runs):
    setting, _, layout = name.partition("/")
    rivals = [runs[f"{setting}/{other}"].median() for other in LAYOUTS
              if layout and f"{setting}/{other}" in runs]
    return bool(rivals) and runs[name].median() > CLEARLY_SLOWER * min(rivals)


def best(setting, runs):
    names = [name for name in runs if name.startswith(setting + "/")]
    return min(names, key=lambda name: runs[name].median())


def spread(values):
    values = list(values)
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "rounds": len(values)}


def ratios(over, under, key):
    shared = sorted(over.rounds.keys() & under.rounds.keys())
    return spread(over.rounds[r][key] / under.rounds[r][key] for r in shared)


# ---- Tables --------------------------------------------------------------------------------------


def print_table(header, rows):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")


def ratio_text(ratio):
    return f"{ratio['median']:.2f} [{ratio['min']:.2f} – {ratio['max']:.2f}]"


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.split(":", 1)[1].strip() for line in info
                      if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "load_average": os.getloadavg()}


# ---- Command line --------------------------------------------------------------------------------


def make_parser(description):
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET[:BATCH]",
                        help="default: " + " ".join(f"{c.net}:{c.batch}" for c in DEFAULTS))
    parser.add_argument("--rounds", type=int, help="default: 3, or 1 with --quick")
    parser.add_argument("--steps", type=int, help="measured steps per process; default: by net")
    parser.add_argument("--time-budget", type=float, metavar="SECONDS",
                        help="per net: start no round that would end later")
    parser.add_argument("--algorithms", default="auto",
                        help="Convoy's convolutions, as engine.algorithms of a job; default: auto")
    parser.add_argument("--quick", action="store_true", help="one round of few steps")
    parser.add_argument("--torch-only", action="store_true", help="leave Convoy out")
    parser.add_argument("--json", metavar="FILE", help="write all that was measured; - for stdout")
    parser.add_argument("--convoy", default=os.path.join(ROOT, "build", "release", "convoy"),
                        help="the program (default: %(default)s)")
    return parser


def parse(parser):
    """The arguments, and the cases that they name."""
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    return args, [parse_case(text) for text in args.nets] or DEFAULTS


def check_parts(args):
    if not args.torch_only and not os.access(args.convoy, os.X_OK):
        raise SystemExit(f"there is no {args.convoy}; build it with: scripts/build release "
                         "convoy_app (--torch-only measures the peer without it)")
    probe = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False)
    if probe.returncode != 0:
        raise SystemExit(f"{PYTHON} has no PyTorch; install it with: scripts/setup --with-peers")


def warn(missing, where):
    if missing:
        say(f"WARNING: 'tuned' lacks {' and '.join(missing)}, so it is NOT what an "
            "expert would run; install with: scripts/setup --with-peers")
    if where["load_average"][0] > 0.5:
        say(f"WARNING: load average {where['load_average'][0]:.1f}; other programs are running")


def write_json(result, name):
    """To a file, or to stdout; true if it was stdout, where tables would disturb."""
    text = json.dumps(result, indent=1) + "\n"
    if name == "-":
        print(text, end="")
        return True
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    return False
