"""The demo: draws a small labelled set of images, packs it into every format, trains a small CNN from each.

Nothing is downloaded and nothing stays behind: everything happens in a temporary folder. The accuracy is that on
images held out; it is the same for all formats, since they hold the same records and the seeds are the same.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

import fastdata
from fastdata.cpus import available_cpus

FORMATS = {"lmdb": "photos.lmdb", "hdf5": "photos.h5", "tar": "photos.tar"}
HEIGHT, WIDTH = 240, 320
SIDE = 64  # what the CNN sees: small enough to train on a CPU in a moment
EPOCHS = 15
BATCH = 16
HELD_OUT = 5  # every fifth image is for testing
# Half of the cores decode, half train: threads of torch that wait for a core spin, and cost more than they give.
CORES = available_cpus()
WORKERS = min(max(1, CORES // 2), 4)

Plane = NDArray[np.float32]
console = Console()


def pattern_rings(u: Plane, v: Plane) -> Plane:
    return np.sin(np.hypot(u, v))


def pattern_stripes(u: Plane, _v: Plane) -> Plane:
    return np.sin(u)


def pattern_checks(u: Plane, v: Plane) -> Plane:
    return np.sign(np.sin(u)) * np.sign(np.sin(v))


def pattern_dots(u: Plane, v: Plane) -> Plane:
    return np.where(np.cos(u) + np.cos(v) > 0.9, 1.0, -0.4).astype(np.float32)


PATTERNS: dict[str, Callable[[Plane, Plane], Plane]] = {
    "checks": pattern_checks,
    "dots": pattern_dots,
    "rings": pattern_rings,
    "stripes": pattern_stripes,
}


def draw_image(pattern: Callable[[Plane, Plane], Plane], rng: np.random.Generator) -> NDArray[np.uint8]:
    """One photo-like image: a pattern turned, scaled and placed by chance, soft light, texture and sensor noise."""
    angle, wavelength = rng.uniform(0, math.pi), rng.uniform(28, 44)
    place = rng.uniform((0.3 * WIDTH, 0.3 * HEIGHT), (0.7 * WIDTH, 0.7 * HEIGHT))
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    x, y = (x - place[0]) * (2 * math.pi / wavelength), (y - place[1]) * (2 * math.pi / wavelength)
    u, v = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    light = cv2.resize(
        rng.uniform(60, 196, (3, 4, 3)).astype(np.float32), (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC
    )
    tint = rng.uniform(0.7, 1.0, 3) * rng.choice((-1, 1)) * rng.uniform(50, 80)
    grain = cv2.resize(rng.normal(0, 12, (HEIGHT // 3, WIDTH // 3, 1)).astype(np.float32), (WIDTH, HEIGHT))[..., None]
    noise = rng.normal(0, 3, (HEIGHT, WIDTH, 3))
    return np.clip(light + pattern(u, v)[..., None] * tint + grain + noise, 0, 255).astype(np.uint8)


def draw(folder: Path, count: int) -> None:
    """A folder of class folders with `count` JPEGs in all."""
    rng = np.random.default_rng(0)
    names = sorted(PATTERNS)
    for name in names:
        (folder / name).mkdir(parents=True)
    for i in range(count):
        name = names[i % len(names)]
        done, data = cv2.imencode(".jpg", draw_image(PATTERNS[name], rng), (cv2.IMWRITE_JPEG_QUALITY, 92))
        assert done
        (folder / name / f"{i:04d}.jpg").write_bytes(data.tobytes())


def network(classes: int) -> nn.Module:
    widths = (16, 32, 64, 64)
    stem = nn.Conv2d(3, widths[0], 5, stride=2, padding=2, bias=False)
    layers: list[nn.Module] = [stem, nn.BatchNorm2d(widths[0]), nn.ReLU()]
    for inputs, outputs in itertools.pairwise(widths):
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))


def turned_over(image: NDArray[np.uint8]) -> Tensor:
    """The image as a CHW tensor, mirrored by chance each way; the chance is seeded by `fastdata.seed_worker`."""
    steps = np.where(np.random.random(2) < 0.5, 1, -1)
    return torch.from_numpy(image[:: steps[0], :: steps[1]].transpose(2, 0, 1).copy())


def as_tensor(image: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(image.transpose(2, 0, 1).copy())


def batches(dataset: Subset[tuple[Tensor, int]], device: torch.device, *, shuffle: bool) -> fastdata.CUDAPrefetcher:
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=shuffle,
        num_workers=WORKERS,
        persistent_workers=True,
        pin_memory=device.type == "cuda",
        worker_init_fn=fastdata.seed_worker,
        generator=torch.Generator().manual_seed(0),
    )
    return fastdata.CUDAPrefetcher(loader, device, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), dtype=torch.float32)


def train(path: Path, device: torch.device) -> tuple[float, float]:
    """Train from one data set; images/s in training (loading included, the start of the workers not) and accuracy."""
    fastdata.seed_everything(0)
    dataset = fastdata.ImageDataset(path, transform=turned_over)
    rows = range(len(dataset))
    training = Subset(dataset, [i for i in rows if i % HELD_OUT])
    testing = Subset(fastdata.ImageDataset(path, transform=as_tensor), [i for i in rows if i % HELD_OUT == 0])
    model = network(len(dataset.classes)).to(device)
    loader = batches(training, device, shuffle=True)
    steps = EPOCHS * len(loader)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    start = 0.0
    for epoch in range(EPOCHS):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if epoch == 0:
            start = time.perf_counter()
    rate = (EPOCHS - 1) * len(training) / (time.perf_counter() - start)
    model.eval()
    with torch.inference_mode():
        right = sum(
            int((model(images).argmax(1) == labels).sum()) for images, labels in batches(testing, device, shuffle=False)
        )
    return rate, right / len(testing)


def size_on_disk(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def run(folder: Path, count: int) -> None:
    torch.set_num_threads(max(1, CORES - WORKERS))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    console.print(f"Drawing {count} images of {len(PATTERNS)} classes")
    draw(folder / "photos", count)
    table = Table(title=f"{count} images, {SIDE} x {SIDE}, {EPOCHS} epochs on {device.type}")
    for column in ("format", "size on disk", "images/s", "accuracy"):
        table.add_column(column, justify="left" if column == "format" else "right")
    for name, target in FORMATS.items():
        report = fastdata.convert(folder / "photos", folder / target, resize=SIDE, resize_mode="crop")
        console.print(f"{name}: converted {report.kept} images in {report.seconds:.1f} s, training")
        rate, accuracy = train(folder / target, device)
        table.add_row(name, f"{size_on_disk(folder / target) / 1e6:.2f} MB", f"{rate:,.0f}", f"{accuracy:.1%}")
    console.print(f"The folder of JPEGs, {WIDTH} x {HEIGHT}: {size_on_disk(folder / 'photos') / 1e6:.2f} MB")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=480, help="images to draw (default: 480)")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="only draw the images, into FOLDER")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(arguments.draw, arguments.count)
        return
    with tempfile.TemporaryDirectory(prefix="fastdata-demo-") as folder:
        run(Path(folder), arguments.count)


if __name__ == "__main__":
    main()
