"""The two transformers on text of the courses, written in PyTorch: the same layers, names and shapes as vitrain's
`transformer` (A) and `encoder` (B).

Two programs import it: tests/golden/make_language_golden.py, whose output vitrain is tested against, and
bench/pytorch_step.py, which is timed beside vitrain.
"""

import math

import torch
from torch import nn
from torch.nn import functional

MOST_PLACES = 5000


class Positions(nn.Module):
    """Adds sines and cosines of the place. [L, B, d] -> [L, B, d]."""

    def __init__(self, dim):
        super().__init__()
        place = torch.arange(MOST_PLACES).float().unsqueeze(1)
        frequency = torch.exp(torch.arange(0, dim, 2).float() * (-math.log(10000.0) / dim))
        table = torch.zeros(MOST_PLACES, dim)
        table[:, 0::2] = torch.sin(place * frequency)
        table[:, 1::2] = torch.cos(place * frequency)
        self.register_buffer("pe", table.unsqueeze(1))

    def forward(self, x):
        return x + self.pe[: x.shape[0]]


def causal_mask(length):
    return torch.full((length, length), float("-inf")).triu(1)


class EncoderDecoder(nn.Module):
    """A. [B, L] -> [B, L, V]; the encoder and the decoder read the same window."""

    def __init__(self, words, dim, heads, depth, hidden, dropout=0.0, causal=False):
        super().__init__()
        self.causal = causal
        self.embed = nn.Embedding(words, dim)
        self.pos_encoder = Positions(dim)
        self.transformer = nn.Transformer(dim, heads, depth, depth, hidden, dropout)
        self.fc = nn.Linear(dim, words)

    def forward(self, tokens):
        x = self.pos_encoder(self.embed(tokens.t()))
        if self.causal:
            mask = causal_mask(tokens.shape[1]).to(x)
            x = self.transformer(x, x, src_mask=mask, tgt_mask=mask, memory_mask=mask, src_is_causal=True,
                                 tgt_is_causal=True, memory_is_causal=True)
        else:
            x = self.transformer(x, x)
        return self.fc(x).transpose(0, 1)


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout, scaled, causal):
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.scale = None if scaled else 1.0
        for name in ("linear_Q", "linear_K", "linear_V", "out_proj"):
            setattr(self, name, nn.Linear(dim, dim))

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = (layer(x).view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
                   for layer in (self.linear_Q, self.linear_K, self.linear_V))
        out = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0,
                                                      is_causal=self.causal, scale=self.scale)
        return self.out_proj(out.transpose(1, 2).reshape(batch, length, dim))


class Layer(nn.Module):
    def __init__(self, dim, heads, hidden, dropout, scaled, causal):
        super().__init__()
        self.self_attn = Attention(dim, heads, dropout, scaled, causal)
        self.linear1, self.linear2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = self.norm1(x + self.drop(self.self_attn(x)))
        return self.norm2(x + self.drop(self.linear2(self.drop(functional.relu(self.linear1(x))))))


class Encoder(nn.Module):
    """B. [B, L] -> [B, L, V]"""

    def __init__(self, words, dim, heads, depth, hidden, dropout=0.0, causal=False, scaled=False):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.pos_encoder = Positions(dim)
        self.layers = nn.ModuleList(Layer(dim, heads, hidden, dropout, scaled, causal) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, words)

    def forward(self, tokens):
        x = self.pos_encoder(self.embed(tokens).transpose(0, 1)).transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.fc(self.norm(x))
