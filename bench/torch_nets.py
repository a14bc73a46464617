"""The zoo's networks in plain torch.nn, and one measured training of each.

As a module: `build("resnet-50")` gives a Net (module, input shape, classes). As a program it times
training steps in this process and prints one JSON object, which bench/compare_pytorch collects:

    /usr/bin/python3 bench/torch_nets.py resnet-50 --batch 32 --layout channels_last --steps 4
    /usr/bin/python3 bench/torch_nets.py --list          # every net with its parameter count

With --distributed it is one of several processes that train together by DistributedDataParallel on
Gloo, as RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say; the batch is then each process's own,
and process 0 prints.
"""

import argparse
import json
import os
import statistics
import time
from typing import Callable, NamedTuple

import torch
from torch import nn


class Net(NamedTuple):
    module: nn.Module
    input: tuple  # {channels, height, width}, or {features}
    classes: int


# ---- Plain chains --------------------------------------------------------------------------------


def conv_relu(inp, out, kernel, stride=1, pad=0, groups=1):
    return [nn.Conv2d(inp, out, kernel, stride, pad, groups=groups), nn.ReLU(inplace=True)]


def linear_relu(inp, out):
    return [nn.Linear(inp, out), nn.ReLU(inplace=True)]


def lenet():
    """Caffe's: pooling follows the convolutions directly, one ReLU after the first linear layer."""
    return Net(nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 50, 5), nn.MaxPool2d(2, 2),
        nn.Flatten(), *linear_relu(800, 500), nn.Linear(500, 10)), (1, 28, 28), 10)


def alexnet():
    """One tower, as in "One weird trick for parallelizing convolutional neural networks"."""
    return Net(nn.Sequential(
        *conv_relu(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2),
        *conv_relu(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2),
        *conv_relu(192, 384, 3, 1, 1), *conv_relu(384, 256, 3, 1, 1),
        *conv_relu(256, 256, 3, 1, 1), nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Dropout(0.5), *linear_relu(256 * 6 * 6, 4096),
        nn.Dropout(0.5), *linear_relu(4096, 4096), nn.Linear(4096, 1000)), (3, 224, 224), 1000)


def caffenet():
    """AlexNet's two groups with pooling before normalisation."""
    def lrn():
        return nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)

    return Net(nn.Sequential(
        *conv_relu(3, 96, 11, 4), nn.MaxPool2d(3, 2), lrn(),
        *conv_relu(96, 256, 5, 1, 2, groups=2), nn.MaxPool2d(3, 2), lrn(),
        *conv_relu(256, 384, 3, 1, 1), *conv_relu(384, 384, 3, 1, 1, groups=2),
        *conv_relu(384, 256, 3, 1, 1, groups=2), nn.MaxPool2d(3, 2),
        nn.Flatten(),
        *linear_relu(256 * 6 * 6, 4096), nn.Dropout(0.5),
        *linear_relu(4096, 4096), nn.Dropout(0.5), nn.Linear(4096, 1000)), (3, 227, 227), 1000)


def overfeat_fast():
    return Net(nn.Sequential(
        *conv_relu(3, 96, 11, 4), nn.MaxPool2d(2, 2),
        *conv_relu(96, 256, 5), nn.MaxPool2d(2, 2),
        *conv_relu(256, 512, 3, 1, 1), *conv_relu(512, 1024, 3, 1, 1),
        *conv_relu(1024, 1024, 3, 1, 1), nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Dropout(0.5), *linear_relu(1024 * 6 * 6, 3072),
        nn.Dropout(0.5), *linear_relu(3072, 4096), nn.Linear(4096, 1000)), (3, 231, 231), 1000)


def vgg(stages):
    layers, channels = [], 3
    for convs, out in stages:
        for _ in range(convs):
            layers += conv_relu(channels, out, 3, 1, 1)
            channels = out
        layers.append(nn.MaxPool2d(2, 2))
    return Net(nn.Sequential(
        *layers, nn.Flatten(),
        *linear_relu(512 * 7 * 7, 4096), nn.Dropout(0.5),
        *linear_relu(4096, 4096), nn.Dropout(0.5), nn.Linear(4096, 1000)), (3, 224, 224), 1000)


def mobilenet_v1():
    def conv_bn(inp, out, kernel, stride, pad, groups=1):
        return [nn.Conv2d(inp, out, kernel, stride, pad, groups=groups, bias=False),
                nn.BatchNorm2d(out), nn.ReLU(inplace=True)]

    layers, channels = conv_bn(3, 32, 3, 2, 1), 32
    for out, stride in [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
                        *[(512, 1)] * 5, (1024, 2), (1024, 1)]:
        layers += conv_bn(channels, channels, 3, stride, 1, groups=channels)
        layers += conv_bn(channels, out, 1, 1, 0)
        channels = out
    return Net(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(1024, 1000)), (3, 224, 224), 1000)


def cd_dnn():
    """Acoustic model: 11 frames of 39 features to tied triphone states."""
    layers, width = [], 429
    for _ in range(7):
        layers += [nn.Linear(width, 2048), nn.Sigmoid()]
        width = 2048
    return Net(nn.Sequential(*layers, nn.Linear(width, 9304)), (429,), 9304)


def mlp():
    return Net(nn.Sequential(nn.Flatten(), *linear_relu(784, 512), *linear_relu(512, 512),
                             nn.Linear(512, 10)), (1, 28, 28), 10)


# ---- Branches and shortcuts ----------------------------------------------------------------------


class ConvBn(nn.Sequential):
    def __init__(self, inp, out, kernel, stride=1, pad=0, relu=True):
        layers = [nn.Conv2d(inp, out, kernel, stride, pad, bias=False), nn.BatchNorm2d(out)]
        super().__init__(*layers, *([nn.ReLU(inplace=True)] if relu else []))


class Inception(nn.Module):
    def __init__(self, inp, one, three_in, three, five_in, five, pool):
        super().__init__()
        self.branches = nn.ModuleList([
            ConvBn(inp, one, 1),
            nn.Sequential(ConvBn(inp, three_in, 1), ConvBn(three_in, three, 3, 1, 1)),
            nn.Sequential(ConvBn(inp, five_in, 1), ConvBn(five_in, five, 5, 1, 2)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), ConvBn(inp, pool, 1))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def googlenet_bn():
    def pool(kernel=3):
        return nn.MaxPool2d(kernel, 2, ceil_mode=True)

    return Net(nn.Sequential(
        ConvBn(3, 64, 7, 2, 3), pool(),
        ConvBn(64, 64, 1), ConvBn(64, 192, 3, 1, 1), pool(),
        Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64), pool(),
        Inception(480, 192, 96, 208, 16, 48, 64), Inception(512, 160, 112, 224, 24, 64, 64),
        Inception(512, 128, 128, 256, 24, 64, 64), Inception(512, 112, 144, 288, 32, 64, 64),
        Inception(528, 256, 160, 320, 32, 128, 128), pool(),
        Inception(832, 256, 160, 320, 32, 128, 128), Inception(832, 384, 192, 384, 48, 128, 128),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(1024, 1000)), (3, 224, 224), 1000)


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)); the shortcut projects where the shape changes."""

    def __init__(self, body, inp, out, stride):
        super().__init__()
        same = stride == 1 and inp == out
        self.body = body
        self.shortcut = nn.Identity() if same else ConvBn(inp, out, 1, stride, relu=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def basic(inp, width, stride):
    body = nn.Sequential(ConvBn(inp, width, 3, stride, 1),
                         ConvBn(width, width, 3, 1, 1, relu=False))
    return Residual(body, inp, width, stride), width


def bottleneck(inp, width, stride):
    out = 4 * width
    body = nn.Sequential(ConvBn(inp, width, 1), ConvBn(width, width, 3, stride, 1),
                         ConvBn(width, out, 1, relu=False))
    return Residual(body, inp, out, stride), out


def residual_stages(block, channels, widths, counts):
    layers = []
    for stage, (width, count) in enumerate(zip(widths, counts)):
        for i in range(count):
            layer, channels = block(channels, width, 2 if stage > 0 and i == 0 else 1)
            layers.append(layer)
    return layers, channels


def imagenet_resnet(block, counts):
    layers, channels = residual_stages(block, 64, (64, 128, 256, 512), counts)
    return Net(nn.Sequential(ConvBn(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1), *layers,
                             nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(channels, 1000)), (3, 224, 224), 1000)


def cifar_resnet(depth):
    layers, channels = residual_stages(basic, 16, (16, 32, 64), [(depth - 2) // 6] * 3)
    return Net(nn.Sequential(ConvBn(3, 16, 3, 1, 1), *layers, nn.AdaptiveAvgPool2d(1),
                             nn.Flatten(), nn.Linear(channels, 10)), (3, 32, 32), 10)


ZOO: dict[str, Callable[[], Net]] = {
    "lenet": lenet,
    "alexnet": alexnet,
    "caffenet": caffenet,
    "overfeat-fast": overfeat_fast,
    "vgg-a": lambda: vgg([(1, 64), (1, 128), (2, 256), (2, 512), (2, 512)]),
    "vgg-16": lambda: vgg([(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)]),
    "googlenet-bn": googlenet_bn,
    "resnet-18": lambda: imagenet_resnet(basic, (2, 2, 2, 2)),
    "resnet-50": lambda: imagenet_resnet(bottleneck, (3, 4, 6, 3)),
    "resnet-20": lambda: cifar_resnet(20),
    "resnet-32": lambda: cifar_resnet(32),
    "resnet-56": lambda: cifar_resnet(56),
    "mobilenet-v1": mobilenet_v1,
    "cd-dnn": cd_dnn,
    "mlp": mlp,
}


def build(name: str) -> Net:
    if name not in ZOO:
        raise SystemExit(f"unknown net '{name}'; there are: {', '.join(ZOO)}")
    return ZOO[name]()


def parameter_count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# ---- One measured training -----------------------------------------------------------------------


def resident_bytes(field: str) -> int:
    """VmRSS or VmHWM; unlike getrusage's maximum, these know nothing of the parent process."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def mapped_library(part: str) -> str:
    """File of the first mapped library whose name contains `part`; empty if there is none."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = (line.split(maxsplit=5)[5].strip() for line in maps if "/" in line)
        return next((path for path in paths if part in path.rsplit("/", 1)[-1]), "")


def join_others(expert: bool) -> None:
    """Meets the other processes; an expert gives each of them its own cores."""
    torch.distributed.init_process_group("gloo")
    if expert:
        cores = sorted(os.sched_getaffinity(0))
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        own = cores[len(cores) * rank // size:len(cores) * (rank + 1) // size]
        os.sched_setaffinity(0, own or cores)


def measure(name: str, batch: int, layout: str, steps: int, warmup: int,
            wrap: Callable = lambda model: model) -> dict:
    base = resident_bytes("VmRSS")
    torch.manual_seed(1)
    net = build(name)
    model = net.module.train()
    x = torch.randn(batch, *net.input)
    labels = torch.randint(net.classes, (batch,))
    if layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
    model = wrap(model)
    criterion = nn.CrossEntropyLoss()
    # The rate is small so that noise as data cannot blow up the weights: infinities and denormals
    # would change the speed.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    times = []
    for _ in range(warmup + steps):
        start = time.perf_counter()
        loss = criterion(model(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    if not torch.isfinite(loss):
        raise SystemExit(f"{name}: the loss is {loss.item()}; this timing would mean nothing")
    step = statistics.median(times[warmup:])
    return {
        "model": name, "batch": batch, "layout": layout, "steps": steps,
        "threads": torch.get_num_threads(), "step_seconds": step, "images_per_second": batch / step,
        "peak_rss_bytes": resident_bytes("VmHWM"), "library_rss_bytes": base,
        "parameters": parameter_count(model), "torch": torch.__version__,
        "blas": mapped_library("blas"), "malloc": mapped_library("jemalloc") or "libc",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", nargs="?")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--layout", choices=["nchw", "channels_last"], default="nchw")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, help="default: PyTorch's own choice")
    parser.add_argument("--distributed", action="store_true", help="one of several processes")
    parser.add_argument("--expert", action="store_true",
                        help="with --distributed: own cores, gradients in DDP's own buckets")
    parser.add_argument("--list", action="store_true", help="print the nets, measure nothing")
    args = parser.parse_args()
    if args.list:
        for name in ZOO:
            print(f"{name:14} {parameter_count(build(name).module):12,}")
        return
    if not args.net:
        parser.error("which net? --list prints them")
    if args.threads:
        torch.set_num_threads(args.threads)
    work = (args.net, args.batch, args.layout, args.steps, args.warmup)
    if not args.distributed:
        print(json.dumps(measure(*work)))
        return
    join_others(args.expert)
    result = measure(*work, lambda model: nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=args.expert))
    if torch.distributed.get_rank() == 0:
        print(json.dumps(result | {"processes": torch.distributed.get_world_size()}))


if __name__ == "__main__":
    main()
