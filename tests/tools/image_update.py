"""CPU time of one update on images: forward, backward and Adam for 512 views of (12, 84, 84).

    THP_MEM_ALLOC_ENABLE=1 python tests/tools/image_update.py [float32|bf16]

The variable asks torch for large pages; 0 turns that off.
"""

import sys
import time

import torch
from torch import nn

from surprise_memory.nn.nets import conv, set_precision

SHAPE = (12, 84, 84)
VIEWS = 4096
ROWS = 512
EPOCHS = 3


def main() -> None:
    """Print the milliseconds of an update, for each epoch."""
    torch.set_num_threads(1)
    precision = sys.argv[1] if len(sys.argv) > 1 else "float32"
    net, width = conv(SHAPE, nn.ReLU)
    layers = nn.ModuleList([net, nn.Linear(width, 5)])
    set_precision(layers, precision)
    adam = torch.optim.Adam(layers.parameters(), fused=True)
    views = torch.randint(0, 256, (VIEWS, *SHAPE), dtype=torch.uint8)
    for _ in range(EPOCHS):
        start = time.process_time()
        for rows in torch.randperm(VIEWS).split(ROWS):
            loss = layers[1](net(views[rows])).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        each = (time.process_time() - start) / (VIEWS // ROWS)
        print(f"{precision}: {1000 * each:.0f} ms")


if __name__ == "__main__":
    main()
