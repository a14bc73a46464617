"""Short trainings, as the benchmarks of several workers run them."""

import json
import os
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MINICLUSTER = os.path.join(ROOT, "scripts", "minicluster")
CONVOY = os.path.join(ROOT, "build", "release", "convoy")
DATA = os.environ.get("CONVOY_DATA", os.path.join(ROOT, "data"))


def minicluster_hosts():
    """How many hosts of scripts/minicluster are up; ends the program if there are too few."""
    hosts = subprocess.run([MINICLUSTER, "hosts"], capture_output=True, text=True)
    count = len(hosts.stdout.splitlines())
    if count < 2:
        raise SystemExit("two hosts at least are needed: scripts/minicluster up 4 1gbit")
    print(f"{count} emulated hosts of one core each, which share this machine's cores")
    return count


class Runs:
    """Trainings of one job file, each in a folder of its own."""

    def __init__(self, convoy, job, folder):
        self.convoy = convoy
        self.folder = folder
        self.job = os.path.join(folder, "job.yaml")
        self.count = 0
        with open(self.job, "w") as out:
            out.write(job)

    def start(self, settings, words=(), before=()):
        """Begins to train; finish() waits for it."""
        self.count += 1
        run = os.path.join(self.folder, f"run{self.count}")
        command = [*before, self.convoy, "train", self.job, "--run", run, *words]
        for setting in settings:
            command += ["--set", setting]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return process, run

    def finish(self, started, may_fail=False):
        """The events of the run; ends the program if it failed and may not."""
        process, run = started
        said = process.communicate()[0]
        if process.returncode != 0 and not may_fail:
            raise SystemExit(f"{' '.join(process.args)}\n{said[-2000:]}")
        with open(os.path.join(run, "events.jsonl")) as events:
            return [json.loads(line) for line in events]


class Steps:
    """What the steps of a training that goes on took: `seconds` and `updates` between two marks, `marks` what
    was read at them, and all events so far."""

    def __init__(self, events, begin, end, marks):
        self.events, self.marks = events, marks
        self.updates, self.seconds = end["step"] - begin["step"], end["time"] - begin["time"]

    def each(self):
        return self.seconds / self.updates


def watch(started, first, steps, seconds, mark=lambda: None, patience=300):
    """Follows the events of a training from step `first` on until it has done so many steps and as many seconds,
    or two steps in four times as many; reads `mark` at both ends. Ends the program if nothing comes."""
    process, run = started
    events, begin, marks, told = [], None, [], 0
    last = time.monotonic()
    while True:
        try:
            with open(os.path.join(run, "events.jsonl")) as file:
                file.seek(told)
                lines = file.read()
        except FileNotFoundError:
            lines = ""
        whole = lines[:lines.rfind("\n") + 1]
        told += len(whole.encode())
        new = [json.loads(line) for line in whole.splitlines()]
        events += new
        for event in new:
            last = time.monotonic()
            if event["event"] != "step" or event["step"] < first:
                continue
            if begin is None:
                begin, marks = event, [mark()]
                continue
            done, took = event["step"] - begin["step"], event["time"] - begin["time"]
            if (done >= steps and took >= seconds) or (done >= 2 and took >= 4 * seconds > 0):
                return Steps(events, begin, event, [*marks, mark()])
        if process.poll() is not None or time.monotonic() - last > patience:
            process.kill()
            raise SystemExit(f"{' '.join(process.args)}\n{process.communicate()[0][-2000:]}")
        time.sleep(0.005)


def stolen(before=None):
    """Ticks of this machine's cores so far, and of them those that its host gave to others; with a `before`, the
    part of them since."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    now = sum(ticks), ticks[7]
    return now if before is None else (now[1] - before[1]) / max(1, now[0] - before[0])


def undisturbed(work, most=0.05, tries=2):
    """What `work` returns: of up to so many tries, one during which no more than that part of the cores was given to
    others, or the one with the least."""
    found = []
    while len(found) < tries and (not found or found[-1][0] > most):
        before = stolen()
        result = work()
        found.append((stolen(before), result))
    least = min(found, key=lambda f: f[0])
    if least[0] > most:
        print(f"  (next: {100 * least[0]:.0f} % of the cores' time went to others meanwhile)", flush=True)
    return least[1]


def planned(command, settings, folder):
    """What this `convoy plan …` says with these settings: the keys of the plan.yaml that it writes."""
    out = os.path.join(folder, "plan.yaml")
    command = [*command, "--out", out]
    for setting in settings:
        command += ["--set", setting]
    done = undisturbed(lambda: subprocess.run(command, capture_output=True, text=True))
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return dict(line.strip().split(": ", 1) for line in open(out) if ": " in line and not line.startswith("#"))


def abandon(started, hosts=0):
    """Ends a training of which enough is known: on so many hosts of the mini-cluster at once, here as it is asked
    to, which saves."""
    process, _ = started
    if hosts:
        for host in range(hosts, 0, -1):
            subprocess.run([MINICLUSTER, "kill", str(host)], check=True)
    else:
        process.terminate()
    process.communicate()


def train(words, settings, convoy=CONVOY, hosts=0):
    """`convoy train WORDS --set SETTING …`, on `hosts` of the mini-cluster if that is not 0; returns
    its images per second."""
    before = [MINICLUSTER, "mpirun", "-n", str(hosts)] if hosts else []
    command = [*before, convoy, "train", "--json", *words]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    for line in reversed(done.stdout.splitlines()):
        event = json.loads(line) if line.startswith("{") else {}
        if "images_per_second" in event:
            return event["images_per_second"]
    raise SystemExit(f"{' '.join(command)}: no images_per_second in its output")
