#!/usr/bin/python3
"""Does the engine compute the same loss and gradients as PyTorch?

    agreement.py DUMP.safetensors                    check a dump
    agreement.py --dump PROGRAM --net NAME           run `PROGRAM NAME OUT.safetensors`, check that
    agreement.py --self-test                         check that this script notices wrong dumps

A dump holds every parameter under its name, `input` [n, c, h, w] or [n, features], `labels`
(integers as F32), `loss` [1] and `grad.<parameter>` for every parameter; its metadata holds the
network as JSON under `graph`: a list of {name, kind, inputs, attributes} in an order in which
every layer follows its inputs. Here the graph runs on torch.nn.functional and autograd.

Exit code: 0 they agree, 1 they do not (or the dump is not sound), 77 PyTorch is not installed.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(f"SKIPPED, NOTHING WAS COMPARED: {sys.executable} cannot import PyTorch ({error}).\n"
          "Install it with: scripts/setup --with-peers", file=sys.stderr)
    sys.exit(77)

LOSS_TOLERANCE = 1e-4  # relative
TENSOR_TOLERANCE = 1e-3  # of the tensor's largest gradient
# A gradient that is zero in exact arithmetic (a bias in front of batch norm) is rounding noise in
# both; it is held against the largest gradient of the whole net instead.
NET_FLOOR = 1e-6


class Unsound(Exception):
    """The dump contradicts itself or the contract above."""


# ---- Files ---------------------------------------------------------------------------------------


class Dump:
    """Tensors by name, and the graph."""

    def __init__(self, tensors, graph):
        self.tensors = tensors
        self.graph = graph

    def tensor(self, name):
        if name not in self.tensors:
            raise Unsound(f"tensor '{name}' is missing")
        return self.tensors[name]

    def scalar(self, name):
        values = self.tensor(name).reshape(-1)
        if values.size != 1:
            raise Unsound(f"'{name}' holds {values.size} values, not 1")
        return float(values[0])


def read_dump(path):
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < 8:
        raise Unsound(f"{path} holds {len(data)} bytes: no safetensors header")
    (length,) = struct.unpack_from("<Q", data)
    if 8 + length > len(data):
        raise Unsound(f"{path}: header of {length} bytes in a file of {len(data)}")
    header = json.loads(data[8:8 + length])
    graph = json.loads(header.pop("__metadata__", {}).get("graph", "[]"))
    if not graph:
        raise Unsound(f"{path} has no 'graph' in its metadata")
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise Unsound(f"tensor '{name}' is {entry['dtype']}, not F32")
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + begin:8 + length + end], "<f4")
        if values.size != int(np.prod(entry["shape"])):
            raise Unsound(f"tensor '{name}' has {values.size} values for shape {entry['shape']}")
        tensors[name] = values.reshape(entry["shape"])
    return Dump(tensors, graph)


def write_dump(path, dump):
    header, blobs, offset = {"__metadata__": {"graph": json.dumps(dump.graph)}}, [], 0
    for name, values in dump.tensors.items():
        blob = np.ascontiguousarray(values, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- The graph in PyTorch ------------------------------------------------------------------------


def flat(x):
    return x.flatten(1)


def image(x):
    """A feature vector of n values is an image {n, 1, 1}."""
    return x[:, :, None, None] if x.dim() == 2 else x


def batch_norm(x, a, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, training=True, eps=a["epsilon"])


def conv(x, a, weight, bias):
    return F.conv2d(image(x), weight, bias, a["stride"], a["pad"], a["dilation"], a["groups"])


def max_pool(x, a):
    return F.max_pool2d(x, a["kernel"], a["stride"], a["pad"], ceil_mode=a["ceil"])


def average_pool(x, a):
    return F.avg_pool2d(x, a["kernel"], a["stride"], a["pad"], a["ceil"], a["count_padding"])


def no_dropout(x, a):
    if a["rate"] != 0:
        raise Unsound(f"dropout of {a['rate']} cannot be compared; the dump must set it to 0")
    return x


# Layers of one input without parameters.
SIMPLE = {
    "relu": lambda x, a: F.relu(x),
    "leaky-relu": lambda x, a: F.leaky_relu(x, a["alpha"]),
    "relu6": lambda x, a: F.relu6(x),
    "elu": lambda x, a: F.elu(x, a["alpha"]),
    "sigmoid": lambda x, a: torch.sigmoid(x),
    "tanh": lambda x, a: torch.tanh(x),
    "gelu": lambda x, a: F.gelu(x),
    "max-pool": max_pool,
    "average-pool": average_pool,
    "global-average-pool": lambda x, a: x.mean((2, 3), keepdim=True),
    "lrn": lambda x, a: F.local_response_norm(x, a["size"], a["alpha"], a["beta"], a["k"]),
    "dropout": no_dropout,
    "flatten": lambda x, a: flat(x),
}
# Layers of one input with parameters <layer>.weight and, where they have one, <layer>.bias.
LEARNED = {
    "conv": conv,
    "linear": lambda x, a, weight, bias: F.linear(flat(x), weight, bias),
    "batch-norm": batch_norm,
}


def cross_entropy(x, a, labels):
    return F.cross_entropy(flat(x), labels.long(), label_smoothing=a.get("smoothing", 0.0))


def squared_error(x, a, labels):
    x = flat(x)
    target = F.one_hot(labels.long(), x.shape[1]).to(x.dtype) if labels.dim() == 1 else flat(labels)
    return F.mse_loss(x, target)


LOSSES = {"softmax-cross-entropy": cross_entropy, "mean-squared-error": squared_error}


class Network:
    """Runs a dump's graph; `parameters` are the leaves that layers asked for, by name."""

    def __init__(self, dump, dtype):
        self.dump = dump
        self.dtype = dtype
        self.parameters = {}

    def loss(self):
        values = []
        for layer in self.dump.graph:
            kind, attributes = layer["kind"], layer.get("attributes") or {}
            inputs = [values[i] for i in layer["inputs"]]
            try:
                values.append(self.run(layer["name"], kind, attributes, inputs))
            except KeyError as key:
                raise Unsound(f"layer '{layer['name']}' ({kind}) has no attribute {key}") from key
        if values[-1].dim() != 0:
            raise Unsound(f"the last layer is '{self.dump.graph[-1]['name']}', not a loss")
        return values[-1]

    def run(self, name, kind, attributes, inputs):
        if kind == "input":
            return self.constant("input")
        if kind == "add":
            return sum(inputs[1:], inputs[0])
        if kind == "concat":
            return torch.cat(inputs, 1)
        if kind in SIMPLE:
            return SIMPLE[kind](*inputs, attributes)
        if kind in LEARNED:
            has_bias = kind == "batch-norm" or attributes["bias"]
            weight = self.parameter(f"{name}.weight")
            bias = self.parameter(f"{name}.bias") if has_bias else None
            return LEARNED[kind](*inputs, attributes, weight, bias)
        if kind in LOSSES:
            return LOSSES[kind](*inputs, attributes, self.constant("labels"))
        raise Unsound(f"layer '{name}' has the unknown kind '{kind}'")

    def constant(self, name):
        return torch.tensor(self.dump.tensor(name), dtype=self.dtype)

    def parameter(self, name):
        if name not in self.parameters:
            self.parameters[name] = self.constant(name).requires_grad_()
        return self.parameters[name]


# ---- Comparison ----------------------------------------------------------------------------------


class Row:
    """One tensor's disagreement as a fraction of what is allowed: above 1 is too much."""

    def __init__(self, name, ours, theirs, floor):
        if ours.shape != theirs.shape:
            raise Unsound(f"'{name}' has shape {list(ours.shape)}, PyTorch's {list(theirs.shape)}")
        self.name = name
        self.largest = float(np.abs(theirs).max())
        self.difference = float(np.abs(ours - theirs).max())
        allowed = max(TENSOR_TOLERANCE * self.largest, floor)
        if not np.isfinite(ours).all():
            self.of_allowed = float("inf")
        elif self.difference == 0:
            self.of_allowed = 0.0
        else:
            self.of_allowed = self.difference / allowed if allowed > 0 else float("inf")


def gradients_in_torch(dump, dtype):
    """The loss, and the gradient of each parameter by name."""
    network = Network(dump, dtype)
    loss = network.loss()
    loss.backward()
    if not network.parameters:
        raise Unsound("the graph has no parameters")
    return float(loss), {name: leaf.grad.double().numpy()
                         for name, leaf in network.parameters.items()}


def compare_gradients(ours, theirs):
    """One row per tensor, the worst first."""
    floor = NET_FLOOR * max(float(np.abs(grad).max()) for grad in theirs.values())
    rows = [Row(name, ours[name], grad, floor) for name, grad in theirs.items()]
    return sorted(rows, key=lambda row: row.of_allowed, reverse=True)


def compare(dump, dtype, show=8, out=sys.stdout):
    """Prints the worst tensors; true if loss and all gradients agree."""
    reference, theirs = gradients_in_torch(dump, dtype)
    stray = [name for name in dump.tensors if name.startswith("grad.") and name[5:] not in theirs]
    if stray:
        raise Unsound(f"no layer of the graph owns the parameter of '{stray[0]}'")
    rows = compare_gradients(
        {name: dump.tensor("grad." + name).astype(np.float64) for name in theirs}, theirs)

    ours = dump.scalar("loss")
    loss_error = abs(ours - reference) / max(abs(reference), 1e-12)
    loss_agrees = loss_error <= LOSS_TOLERANCE  # false for a NaN
    wrong = sum(not row.of_allowed <= 1 for row in rows)

    print(f"loss {ours:.7g}, PyTorch {reference:.7g}: relative difference {loss_error:.1e}"
          f"{'' if loss_agrees else '  <-- WRONG'}", file=out)
    title = "worst gradients"
    width = max(len(title), *(len(row.name) for row in rows[:show]))
    print(f"{title:{width}}  {'max |b|':>9}  {'max |a-b|':>9}  of allowed", file=out)
    for row in rows[:show]:
        mark = "" if row.of_allowed <= 1 else "  <-- WRONG"
        print(f"{row.name:{width}}  {row.largest:9.2e}  {row.difference:9.2e}  "
              f"{row.of_allowed:10.2%}{mark}", file=out)
    print(f"{len(rows) - wrong} of {len(rows)} gradients agree", file=out)
    if wrong:
        print_conditioning(dump, out)
    return loss_agrees and wrong == 0


def print_conditioning(dump, out):
    """Says whether the dump can be judged at all: a gradient jumps where rounding decides on which
    side of zero a ReLU's input lies, and PyTorch's own two precisions then disagree as well."""
    worst = compare_gradients(gradients_in_torch(dump, torch.float32)[1],
                              gradients_in_torch(dump, torch.float64)[1])[0]
    print(f"PyTorch's float32 against its own float64: worst is {worst.name} with "
          f"{worst.of_allowed:.2%} of allowed"
          + ("; this dump is ill-conditioned, choose other weights or another input"
             if worst.of_allowed > 0.5 else ""), file=out)


def check_file(path, dtype, show):
    try:
        return compare(read_dump(path), dtype, show)
    except (Unsound, OSError, json.JSONDecodeError) as error:
        print(f"unsound dump: {error}")
        return False


def dump_and_check(program, net, dtype, show):
    with tempfile.TemporaryDirectory(prefix="convoy-agreement-") as folder:
        path = os.path.join(folder, "dump.safetensors")
        done = subprocess.run([program, net, path], check=False)
        if done.returncode != 0:
            print(f"'{program} {net} {path}' failed with exit code {done.returncode}")
            return False
        return check_file(path, dtype, show)


# ---- Self-test -----------------------------------------------------------------------------------


def spatial(**changed):
    both = {key: [value, value] for key, value in changed.items() if isinstance(value, int)}
    return {"stride": [1, 1], "pad": [0, 0], "dilation": [1, 1], **both,
            **{key: value for key, value in changed.items() if not isinstance(value, int)}}


class EveryKind(nn.Module):
    """A network with every kind of layer, written by hand in torch.nn beside its graph."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss
        self.conv1 = nn.Conv2d(3, 8, (3, 5), padding=(1, 2), bias=False)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-3)
        self.left = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.right = nn.Conv2d(8, 8, 1)
        self.last = nn.Conv2d(16, 6, 3, stride=2)
        self.fc1 = nn.Linear(24, 12, bias=False)
        self.fc2 = nn.Linear(12, 10)
        self.fc3 = nn.Linear(12, 5)

    def forward(self, x, labels):
        x = nn.ReLU()(self.bn1(self.conv1(x)))
        left, right = nn.ELU(1.5)(self.left(x)), nn.LeakyReLU(0.2)(self.right(x))
        x = nn.LocalResponseNorm(3, 0.5, 0.75, 2.0)(left + right)
        x = torch.cat([nn.MaxPool2d(3, 2, 1, ceil_mode=True)(x),
                       nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)(x)], 1)
        x = nn.ReLU6()(self.last(x))
        x = nn.GELU()(self.fc1(torch.flatten(x, 1)))
        x = torch.sigmoid(x) + torch.tanh(x)
        x = (self.fc2 if self.loss == "softmax-cross-entropy" else self.fc3)(x)
        if self.loss == "softmax-cross-entropy":
            return nn.CrossEntropyLoss(label_smoothing=0.1)(x, labels)
        target = torch.zeros_like(x).scatter_(1, labels[:, None], 1.0)
        return ((x - target) ** 2).sum(1).div(x.shape[1]).mean()

    def graph(self):
        layers = []

        def add(name, kind, inputs, **attributes):
            layers.append({"name": name, "kind": kind, "inputs": inputs, "attributes": attributes})
            return len(layers) - 1

        x = add("input", "input", [])
        x = add("conv1", "conv", [x], **spatial(pad=[1, 2]), out=8, kernel=[3, 5], groups=1,
                bias=False)
        x = add("relu", "relu", [add("bn1", "batch-norm", [x], epsilon=1e-3)])
        left = add("left", "conv", [x], **spatial(kernel=3, pad=2, dilation=2), out=8, groups=4,
                   bias=True)
        right = add("right", "conv", [x], **spatial(kernel=1), out=8, groups=1, bias=True)
        x = add("add", "add", [add("elu", "elu", [left], alpha=1.5),
                               add("leaky", "leaky-relu", [right], alpha=0.2)])
        x = add("lrn", "lrn", [x], size=3, alpha=0.5, beta=0.75, k=2.0)
        pool = {**spatial(kernel=3, stride=2, pad=1), "ceil": True, "count_padding": False}
        x = add("concat", "concat", [add("max", "max-pool", [x], **pool),
                                     add("average", "average-pool", [x], **pool)])
        x = add("last", "conv", [x], **spatial(kernel=3, stride=2), out=6, groups=1, bias=True)
        x = add("flatten", "flatten", [add("relu6", "relu6", [x])])
        x = add("gelu", "gelu", [add("fc1", "linear", [x], out=12, bias=False)])
        x = add("add2", "add", [add("sigmoid", "sigmoid", [x]), add("tanh", "tanh", [x])])
        classes = self.loss == "softmax-cross-entropy"
        x = add("dropout", "dropout", [x], rate=0)
        x = add("fc2" if classes else "fc3", "linear", [x], out=10 if classes else 5, bias=True)
        add("loss", self.loss, [x], **({"smoothing": 0.1} if classes else {}))
        return layers


def self_made_dump(loss):
    torch.manual_seed(7)
    model = EveryKind(loss)
    x, labels = torch.randn(4, 3, 9, 9), torch.tensor([0, 3, 1, 4])
    value = model(x, labels)
    value.backward()
    tensors = {"input": x, "labels": labels.float(), "loss": value.reshape(1)}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            tensors[name], tensors["grad." + name] = parameter, parameter.grad
    return Dump({name: t.detach().numpy().copy() for name, t in tensors.items()}, model.graph())


def global_pool_and_vector_case():
    """What EveryKind has no place for: global pooling, vectors in convolutions, real targets."""
    torch.manual_seed(8)
    x, target = torch.randn(3, 6, 4, 4), torch.randn(3, 2)
    layer = nn.Conv2d(6, 2, 1)
    value = ((layer(x.mean((2, 3))[:, :, None, None]).flatten(1) - target) ** 2).mean()
    value.backward()
    graph = [{"name": "input", "kind": "input", "inputs": []},
             {"name": "pool", "kind": "global-average-pool", "inputs": [0]},
             {"name": "flatten", "kind": "flatten", "inputs": [1]},
             {"name": "conv", "kind": "conv", "inputs": [2],
              "attributes": {**spatial(kernel=1), "out": 2, "groups": 1, "bias": True}},
             {"name": "loss", "kind": "mean-squared-error", "inputs": [3]}]
    tensors = {"input": x, "labels": target, "loss": value.reshape(1),
               "conv.weight": layer.weight, "grad.conv.weight": layer.weight.grad,
               "conv.bias": layer.bias, "grad.conv.bias": layer.bias.grad}
    return Dump({name: t.detach().numpy().copy() for name, t in tensors.items()}, graph)


def damaged(dump):
    """(what, dump) for errors that must not pass; each is as small as the tolerances allow."""
    def copy(change):
        tensors = {name: values.copy() for name, values in dump.tensors.items()}
        graph = json.loads(json.dumps(dump.graph))
        change(tensors, graph)
        return Dump(tensors, graph)

    def bump(name, relative):
        def change(tensors, _):
            values = tensors[name].reshape(-1)
            values[np.abs(values).argmax()] *= 1 + relative
        return change

    def drop(name):
        return lambda tensors, _: tensors.pop(name)

    def put(name, values):
        return lambda tensors, _: tensors.update({name: values})

    gradients = [name for name in dump.tensors if name.startswith("grad.")]
    for name in gradients:
        yield f"{name} off by 0.2 %", copy(bump(name, 2e-3))
    first = gradients[0]
    yield "a gradient of the wrong sign", copy(put(first, -dump.tensors[first]))
    yield "a NaN in a gradient", copy(lambda t, _: t[first].reshape(-1).__setitem__(0, np.nan))
    yield "a gradient of the wrong shape", copy(put(first, dump.tensors[first].reshape(-1)))
    yield "a missing gradient", copy(drop(first))
    yield "a gradient of no layer", copy(put("grad.nobody.weight", np.ones(3, np.float32)))
    yield "a loss off by 0.02 %", copy(bump("loss", 2e-4))
    yield "a NaN as loss", copy(put("loss", np.array([np.nan], np.float32)))
    yield "an unknown kind", copy(lambda _, g: g[1].update(kind="cnov"))


def verdict(dump, dtype):
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="ascii") as quiet:
        path = os.path.join(folder, "dump.safetensors")
        write_dump(path, dump)
        try:
            return compare(read_dump(path), dtype, out=quiet)
        except Unsound:
            return False


def self_test():
    failures, cases = [], 0
    for what, dump in [("classes", self_made_dump("softmax-cross-entropy")),
                       ("squared error", self_made_dump("mean-squared-error")),
                       ("global pooling", global_pool_and_vector_case())]:
        for dtype in (torch.float32, torch.float64):
            cases += 1
            if not verdict(dump, dtype):
                failures.append(f"{what}: a right dump was refused in {dtype}")
        for damage, wrong in damaged(dump):
            cases += 1
            if verdict(wrong, torch.float32):
                failures.append(f"{what}: {damage} went unnoticed")
    print("\n".join(failures) if failures else f"self-test: {cases} cases as expected")
    return not failures


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="a dump to check")
    parser.add_argument("--dump", metavar="PROGRAM", help="program that writes the dump")
    parser.add_argument("--net", metavar="NAME", help="zoo net for --dump")
    parser.add_argument("--double", action="store_true", help="run PyTorch in float64")
    parser.add_argument("--show", type=int, default=8, help="how many tensors to list")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    dtype = torch.float64 if args.double else torch.float32
    if args.self_test:
        return self_test()
    if args.dump and args.net:
        return dump_and_check(args.dump, args.net, dtype, args.show)
    if args.file:
        return check_file(args.file, dtype, args.show)
    parser.error("give a dump, or --dump PROGRAM --net NAME, or --self-test")


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
