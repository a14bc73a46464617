"""One PyTorch-side pipeline from JPEGs in memory to normalised batches; run by bench/compare_loading.

    torch_loading.py FOLDER PIPELINE --workers N --seconds S

decodes the images below FOLDER, cuts a random part (area 0.08 to 1, aspect 3/4 to 4/3), scales it to
224×224, flips it half of the time and normalises it; first in a loop in this process ("alone"), then
in the N worker processes of a DataLoader ("loader"). Prints one JSON object with images/s by the
clock and by CPU time: of the loop, or of the workers and the main process. All run on one thread.

The pipelines, each as an expert would write it:

    pillow          Pillow decodes at reduced size where that is enough (draft) and scales the part
                    alone (box, reducing_gap)
    torchvision     the usual recipe: torchvision.transforms on Pillow's images
    torchvision-io  torchvision.io.decode_jpeg; the part is scaled as float tensor
    opencv          torchvision.io.decode_jpeg, and OpenCV scales each plane of bytes: by its linear
                    filter, or the mean over areas (INTER_AREA) where it reduces
    opencv-linear   the same, but reduces by the linear filter, too, which takes less time because it
                    leaves out pixels: the result is not as good as that of all others

Pillow's and OpenCV's workers send bytes, and the main process makes them normalised floats: a
quarter of the memory to move, which gains more than it costs. All run with libc's allocator;
jemalloc was no faster in two short runs on a busy machine.
"""

import argparse
import io
import json
import math
import os
import random
import resource
import time
import warnings

import numpy as np
import torch
import torch.nn.functional as F
import torchvision.transforms as T
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.io import ImageReadMode, decode_jpeg

SIZE = 224
BATCH = 64
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCALE = torch.tensor([1 / (255 * s) for s in STD]).view(3, 1, 1)
SHIFT = torch.tensor([-m / s for m, s in zip(MEAN, STD)]).view(3, 1, 1)


def random_part(width, height):
    """x, y, width, height, as torchvision's RandomResizedCrop draws them, without its tensors."""
    for _ in range(10):
        area = width * height * random.uniform(*AREA)
        aspect = math.exp(random.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


# ---- Pipelines: from a JPEG to 3 × 224 × 224 floats, or to bytes that finish() makes floats ------


def pillow(encoded):
    image = Image.open(io.BytesIO(encoded))
    width, height = image.size
    x, y, w, h = random_part(width, height)
    image.draft("RGB", (width * SIZE // w, height * SIZE // h))
    scale = image.size[0] / width
    if image.mode != "RGB":
        image = image.convert("RGB")
    image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, reducing_gap=2.0,
                         box=(x * scale, y * scale, (x + w) * scale, (y + h) * scale))
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    planes = b"".join(plane.tobytes() for plane in image.split())
    return torch.frombuffer(planes, dtype=torch.uint8).view(3, SIZE, SIZE)


RECIPE = T.Compose([T.RandomResizedCrop(SIZE, AREA, ASPECT), T.RandomHorizontalFlip(), T.ToTensor(),
                    T.Normalize(MEAN, STD)])


def torchvision(encoded):
    return RECIPE(Image.open(io.BytesIO(encoded)).convert("RGB"))


def torchvision_io(encoded):
    image = decode_jpeg(encoded, ImageReadMode.RGB)
    x, y, w, h = random_part(image.shape[2], image.shape[1])
    part = image[None, :, y:y + h, x:x + w].float()
    part = F.interpolate(part, (SIZE, SIZE), mode="bilinear", align_corners=False,
                         antialias=w > SIZE or h > SIZE)[0]
    if random.random() < 0.5:
        part = part.flip(-1)
    return part.mul_(SCALE).add_(SHIFT)


def opencv(encoded, antialias=True):
    image = decode_jpeg(encoded, ImageReadMode.RGB)
    x, y, w, h = random_part(image.shape[2], image.shape[1])
    way = cv2.INTER_AREA if antialias and (w > SIZE or h > SIZE) else cv2.INTER_LINEAR
    scaled = torch.empty(3, SIZE, SIZE, dtype=torch.uint8)
    for plane, to in zip(image.numpy(), scaled.numpy()):
        cv2.resize(plane[y:y + h, x:x + w], (SIZE, SIZE), dst=to, interpolation=way)
    return scaled.flip(-1) if random.random() < 0.5 else scaled


def opencv_linear(encoded):
    return opencv(encoded, antialias=False)


def finish(scaled, out):
    """Normalised floats of what a pipeline gave, in `out` if they are not there already."""
    return scaled if scaled.is_floating_point() else out.copy_(scaled).mul_(SCALE).add_(SHIFT)


PIPELINES = {"pillow": pillow, "torchvision": torchvision, "torchvision-io": torchvision_io,
             "opencv": opencv, "opencv-linear": opencv_linear}
BYTES_AS_TENSORS = ("torchvision-io", "opencv", "opencv-linear")


class Images(Dataset):
    """JPEGs in memory, as the pipeline wants them; an endless number of them for a loader."""

    def __init__(self, folder, name):
        self.prepare = PIPELINES[name]
        self.encoded = []
        for root, _, files in sorted(os.walk(folder)):
            for file in sorted(files):
                if file.lower().endswith((".jpg", ".jpeg")):
                    with open(os.path.join(root, file), "rb") as image:
                        self.encoded.append(image.read())
        if not self.encoded:
            raise SystemExit(f"{folder}: no *.jpg or *.jpeg there")
        if name in BYTES_AS_TENSORS:
            self.encoded = [torch.from_numpy(np.frombuffer(e, np.uint8)) for e in self.encoded]
        random.Random(1).shuffle(self.encoded)

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        return self.prepare(self.encoded[index % len(self.encoded)])


# ---- Measuring -----------------------------------------------------------------------------------


def alone(images, seconds):
    out = torch.empty(3, SIZE, SIZE)
    for i in range(BATCH):
        finish(images[i], out)
    count, cpu, begin = 0, time.thread_time(), time.monotonic()
    while time.monotonic() - begin < seconds:
        finish(images[BATCH + count], out)
        count += 1
    return {"images_per_second": count / (time.monotonic() - begin),
            "images_per_cpu_second": count / (time.thread_time() - cpu)}


def with_time(samples):
    """In the worker: the batch, whose it is, and the CPU time the worker has had."""
    return default_collate(samples), os.getpid(), time.process_time()


def loader(images, workers, seconds):
    batches = iter(DataLoader(images, batch_size=BATCH, num_workers=workers, collate_fn=with_time))
    out = torch.empty(BATCH, 3, SIZE, SIZE)
    first, last = {}, {}
    for _ in range(workers):  # the first batch of each is for warming up
        batch, worker, cpu = next(batches)
        first[worker] = cpu
        out.copy_(batch)
    count, own, begin = 0, time.process_time(), time.monotonic()
    while time.monotonic() - begin < seconds or len(last) < workers:
        batch, worker, last_cpu = next(batches)
        for image, to in zip(batch, out):
            finish(image, to)
        count += len(batch)
        last[worker] = last_cpu
    wall, own = time.monotonic() - begin, time.process_time() - own
    cpu = sum(last[worker] - first[worker] for worker in first)
    return {"images_per_second": count / wall, "images_per_cpu_second": count / (cpu + own),
            "cpu_of_main_process": own / (cpu + own)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("pipeline", choices=PIPELINES)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.pipeline.startswith("opencv"):
        global cv2
        import cv2  # large, and the other pipelines do without
        cv2.setNumThreads(0)
    warnings.filterwarnings("ignore", message=".*not writable")  # nobody writes to encoded images
    images = Images(args.folder, args.pipeline)
    result = {"alone": alone(images, args.seconds),
              "loader": loader(images, args.workers, args.seconds),
              "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
