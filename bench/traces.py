"""Reads what `convoy train --trace` writes; all times in milliseconds."""

import collections
import json


class Worker:
    def __init__(self):
        self.name, self.lanes = "", set()
        self.first, self.last = float("inf"), float("-inf")
        self.computing = self.waiting = self.exchanged = 0.0
        self.exchanges = []

    def finish(self):
        lanes = max(1, len(self.lanes))
        self.computed, self.waited = self.computing / lanes, self.waiting / lanes
        self.span = max(0.0, self.last - self.first)
        end = float("-inf")
        for begin, until in sorted(self.exchanges):  # the time that at least one of them covers
            self.exchanged += max(0.0, until - max(begin, end))
            end = max(end, until)
        # None if nothing was exchanged.
        self.hidden = 1 - self.waited / self.exchanged if self.exchanged > 0 else None


class Trace:
    """Workers in order, each with: span, how long its lanes (on average) computed and waited for
    weights, for how long something was exchanged, and the part of that which is hidden."""

    def __init__(self, path):
        workers, begun = collections.defaultdict(Worker), {}
        for event in json.load(open(path))["traceEvents"]:
            worker = workers[event["pid"]]
            at = event.get("ts", 0) / 1e3
            if event["ph"] == "M" and event["name"] == "process_name":
                worker.name = event["args"]["name"]
            elif event["ph"] == "b":
                begun[event["id"]] = at
            elif event["ph"] == "e":
                worker.exchanges.append((begun.pop(event["id"]), at))
            elif event["ph"] == "X":
                took = event["dur"] / 1e3
                worker.lanes.add(event["tid"])
                worker.first, worker.last = min(worker.first, at), max(worker.last, at + took)
                if event["cat"] == "wait":
                    worker.waiting += took
                elif event["cat"] == "compute":
                    worker.computing += took
        self.workers = [workers[pid] for pid in sorted(workers)]
        for worker in self.workers:
            worker.finish()
