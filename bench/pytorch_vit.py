"""The reference model: the same vision transformer as vitrain's, written in PyTorch.

Two programs import it: tests/golden/make_golden.py, whose output vitrain is tested against, and
bench/pytorch_step.py, which is timed beside vitrain. Parameter names and shapes are those of
vitrain's checkpoints. Dropout and drop path are left out: both programs run with rate 0.

Shapes in comments: B samples, C channels, H x W grid points, p patch edge, h = H/p, w = W/p,
N = h*w tokens, D embed_dim.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

LAYER_NORM_EPS = 1e-6
WEIGHT_STD = 0.02
WEIGHT_CUT = 2.0  # an absolute limit, which at std 0.02 no number reaches


class PatchEmbed(nn.Module):
    """Maps each p x p patch of all channels to one token by one linear map."""

    def __init__(self, n_in_channels, embed_dim, patch_size):
        super().__init__()
        self.proj = nn.Conv2d(n_in_channels, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, fields):
        return self.proj(fields).flatten(2).transpose(1, 2)  # [B, D, h, w] -> [B, N, D], row-major


class Attention(nn.Module):
    """Multi-head self-attention without a mask; head i owns channels [i*d, (i+1)*d), d = D/heads."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        if embed_dim % num_heads != 0:
            raise ValueError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}")
        self.num_heads = num_heads
        self.q = nn.Linear(embed_dim, embed_dim)
        self.k = nn.Linear(embed_dim, embed_dim)
        self.v = nn.Linear(embed_dim, embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def split_heads(self, tokens):
        return tokens.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, heads, N, d]

    def forward(self, tokens):
        query = self.split_heads(self.q(tokens))
        key = self.split_heads(self.k(tokens))
        value = self.split_heads(self.v(tokens))
        # The default scale is 1/sqrt(d), as wanted.
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, embed_dim, gelu):
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, 4 * embed_dim)
        self.fc2 = nn.Linear(4 * embed_dim, embed_dim)
        self.gelu_approximation = {"erf": "none", "tanh": "tanh"}[gelu]

    def forward(self, tokens):
        return self.fc2(F.gelu(self.fc1(tokens), approximate=self.gelu_approximation))


class Block(nn.Module):
    def __init__(self, embed_dim, num_heads, gelu):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim, eps=LAYER_NORM_EPS)
        self.attn = Attention(embed_dim, num_heads)
        self.norm2 = nn.LayerNorm(embed_dim, eps=LAYER_NORM_EPS)
        self.mlp = Mlp(embed_dim, gelu)

    def forward(self, tokens):
        tokens = tokens + self.attn(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class VisionTransformer(nn.Module):
    """Maps fields [B, n_in_channels, H, W] to fields [B, n_out_channels, H, W]."""

    def __init__(self, img_size, patch_size, n_in_channels, n_out_channels, embed_dim, depth, num_heads, gelu="erf"):
        super().__init__()
        height, width = img_size
        if height % patch_size != 0 or width % patch_size != 0:
            raise ValueError(f"img_size {height}x{width} is not a multiple of patch_size {patch_size}")
        self.patch_size = patch_size
        self.patch_rows = height // patch_size
        self.patch_columns = width // patch_size
        self.n_out_channels = n_out_channels

        self.patch_embed = PatchEmbed(n_in_channels, embed_dim, patch_size)
        self.pos_embed = nn.Parameter(torch.zeros(1, self.patch_rows * self.patch_columns, embed_dim))
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads, gelu) for _ in range(depth))
        self.norm = nn.LayerNorm(embed_dim, eps=LAYER_NORM_EPS)
        self.head = nn.Linear(embed_dim, n_out_channels * patch_size * patch_size, bias=False)
        self.initialise()

    def initialise(self):
        """The patch embedding keeps Conv2d's default: uniform +-1/sqrt(C_in*p*p), weight and bias.
        LayerNorm keeps 1 and 0."""
        nn.init.trunc_normal_(self.pos_embed, std=WEIGHT_STD, a=-WEIGHT_CUT, b=WEIGHT_CUT)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=WEIGHT_STD, a=-WEIGHT_CUT, b=WEIGHT_CUT)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def lay_back(self, patches):
        """[B, N, p*p*C_out], each token ordered [p_row, p_col, C_out] -> [B, C_out, H, W]."""
        p = self.patch_size
        grid = patches.reshape(-1, self.patch_rows, self.patch_columns, p, p, self.n_out_channels)
        rows_and_columns = grid.permute(0, 5, 1, 3, 2, 4)  # [B, C_out, h, p_row, w, p_col]
        return rows_and_columns.reshape(-1, self.n_out_channels, self.patch_rows * p, self.patch_columns * p)

    def forward(self, fields):
        tokens = self.patch_embed(fields) + self.pos_embed
        for block in self.blocks:
            tokens = block(tokens)
        return self.lay_back(self.head(self.norm(tokens)))


def sample_losses(prediction, target):
    """||prediction - target|| / ||target|| of each sample, 2-norms over (C, H, W). Returns [B]."""
    error_norm = torch.linalg.vector_norm((prediction - target).flatten(1), dim=1)
    return error_norm / torch.linalg.vector_norm(target.flatten(1), dim=1)


def relative_loss(prediction, target):
    """The training loss: mean of sample_losses."""
    return sample_losses(prediction, target).mean()


def latitude_weights(height, dtype=torch.float64):
    """cos(latitude) with mean 1, for rows from 90 to -90 degrees, both ends included. Returns [H]."""
    weights = torch.cos(torch.deg2rad(torch.linspace(90.0, -90.0, height, dtype=torch.float64)))
    return (weights / weights.mean()).to(dtype)


def channel_rmse(prediction, target):
    """Latitude-weighted RMSE of each channel: root of the weighted grid mean of each sample, then the
    mean over samples. Returns [C]."""
    weights = latitude_weights(prediction.shape[-2], prediction.dtype).to(prediction.device)
    squared_error = weights[:, None] * (prediction - target) ** 2
    return squared_error.mean(dim=(-2, -1)).sqrt().mean(dim=0)


def learning_rate_at(step, base_rate, num_iters, warmup=0, schedule="cosine"):
    """Learning rate of step 0, 1, ...: a half cosine from base_rate to 0, under a linear warm-up."""
    if schedule == "none":
        return base_rate
    factor = 0.5 * (1.0 + math.cos(math.pi * step / num_iters))
    if warmup > 0:
        factor = min((step + 1) / warmup, factor)
    return base_rate * factor
