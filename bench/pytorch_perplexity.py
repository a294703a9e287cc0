"""Trains the course's model on text in PyTorch, as `vitrain --config=wikitext_b` or `--config=lm` does, and prints its
perplexity on the validation and the test text, in windows side by side.

    python bench/pytorch_perplexity.py wikitext_b DIR --steps=500
"""

import argparse
import math
import time

import torch
from pytorch_language import Encoder
from torch import nn
from torch.nn import functional

LENGTH = 32


def read(directory, name):
    with open(f"{directory}/{name}.txt", encoding="utf-8") as file:
        return file.read().lower().split()


def windows(tokens, first):
    """Inputs and targets of the windows that begin at `first`."""
    places = first[:, None] + torch.arange(LENGTH + 1)
    return tokens[places[:, :-1]], tokens[places[:, 1:]]


def loss_of(model, tokens, first):
    x, y = windows(tokens, first)
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", choices=("wikitext_b", "lm"))
    parser.add_argument("directory")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=333)
    arguments = parser.parse_args()
    ours = arguments.config == "lm"
    batch, stride, rate = (32, 16, 1e-3) if ours else (128, 1, 2e-3)
    train = read(arguments.directory, "train")
    number = {word: i for i, word in enumerate(sorted(set(train)))}
    tokens = {"train": torch.tensor([number[word] for word in train])}
    for name in ("valid", "test"):
        tokens[name] = torch.tensor([number[word] for word in read(arguments.directory, name) if word in number])
    torch.manual_seed(arguments.seed)
    model = Encoder(len(number), 128, 4, 2, 2048, dropout=0.1, causal=ours, scaled=ours)
    for name, value in model.named_parameters():
        if value.dim() > 1 and not (ours and name == "embed.weight"):
            nn.init.xavier_uniform_(value)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    starts = torch.arange(0, len(tokens["train"]) - LENGTH, stride)
    order = starts[torch.randperm(len(starts))]
    begin = time.process_time()
    for step in range(arguments.steps):
        first = order[torch.arange(step * batch, (step + 1) * batch) % len(order)]
        optimizer.zero_grad()
        loss = loss_of(model, tokens["train"], first)
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {loss.item():.5f}, {time.process_time() - begin:.0f} CPU seconds", flush=True)
    model.eval()
    with torch.no_grad():
        for name in ("valid", "test"):
            first = torch.arange(0, len(tokens[name]) - LENGTH, LENGTH)
            losses = [loss_of(model, tokens[name], part) * len(part) for part in first.split(64)]
            loss = (sum(losses) / len(first)).item()
            print(f"{name}: {len(first)} windows, loss {loss:.6f}, perplexity {math.exp(loss):.2f}")


main()
