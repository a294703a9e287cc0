"""The 3-D U-Net of the 2022 tutorial, written in PyTorch: the same layers, names and shapes as vitrain's `unet3d`.

Two programs import it: tests/golden/make_unet_golden.py, whose output vitrain is tested against, and
bench/pytorch_step.py, which is timed beside vitrain.
"""

import torch
from torch import nn

IN_CHANNELS, OUT_CHANNELS = 4, 5


class UNet(nn.Module):
    """[B, 4, S, S, S] -> [B, 5, S, S, S]; S is a multiple of 64, or of 32 without full_scale."""

    def __init__(self, width, full_scale=True):
        super().__init__()
        self.depth = 6 if full_scale else 5
        channels = [IN_CHANNELS, width, 2 * width, 4 * width, 8 * width, 8 * width, 8 * width][: self.depth + 1]
        for i in range(1, self.depth + 1):
            layer = nn.Conv3d(channels[i - 1], channels[i], 4, stride=2, padding=1)
            setattr(self, f"conv_down{i}", nn.Sequential(layer, nn.LeakyReLU(0.01)))
        for i in range(self.depth, 1, -1):
            wide = (1 if i == self.depth else 2) * channels[i]
            layer = nn.ConvTranspose3d(wide, channels[i - 1], 4, stride=2, padding=1)
            setattr(self, f"conv_up{i}", nn.Sequential(layer, nn.ReLU()))
        self.conv_last = nn.ConvTranspose3d(2 * width, OUT_CHANNELS, 4, stride=2, padding=1)

    def forward(self, x):
        down = [x]
        for i in range(1, self.depth + 1):
            down.append(getattr(self, f"conv_down{i}")(down[-1]))
        x = down[self.depth]
        for i in range(self.depth, 1, -1):
            x = torch.cat([getattr(self, f"conv_up{i}")(x), down[i - 1]], dim=1)
        return torch.tanh(self.conv_last(x))
