#!/usr/bin/env python3
"""Trains a small mixture-of-experts language model and records what its router chooses.

The model is a causal transformer whose every layer has attention and a mixture of 64 experts, of
which each token takes 8. It is trained on a plain text file, on one CPU thread, in some minutes;
the last 5 % of the text is held out. Then the first tokens of that held-out part go through the
model, and the experts that each of them picked in each layer are written as int16
[tokens, layers, topk], heaviest expert first: the form that `ferry bench --routing` reads.

Needs numpy and torch >= 1.13. README.md beside this file says which text the recording in the
repository comes from, and what this script printed.
"""

import argparse
import collections
import hashlib
import math
import re
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

NUM_LAYERS, NUM_EXPERTS, TOPK = 4, 64, 8
HIDDEN, NUM_HEADS, EXPERT_HIDDEN = 128, 4, 64
VOCABULARY, CONTEXT = 1024, 256  # CONTEXT: tokens that attend to each other, one row of a batch
BATCH = 16  # rows of CONTEXT tokens per step
LEARNING_RATE, BALANCE_WEIGHT = 2e-3, 0.01


# --- text to tokens: byte pair encoding, learned on the training part only ---


def split_words(text):
    """A word keeps the space before it; any other byte stands alone."""
    return re.findall(rb" ?[A-Za-z]+|[^A-Za-z]", text)


def merge_pair(word, pair, token):
    merged = []
    for piece in word:
        if merged and (merged[-1], piece) == pair:
            merged[-1] = token
        else:
            merged.append(piece)
    return merged


def learn_merges(words):
    """Returns {pair: new token} in the order of learning; tokens 0..255 are the bytes."""
    commonest = collections.Counter(words).most_common(4096)  # rarer words change little, cost much
    spelled = [(list(word), count) for word, count in commonest]
    merges = {}
    for token in range(256, VOCABULARY):
        pairs = collections.Counter()
        for word, count in spelled:
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))  # a tie must not depend on order
        merges[best] = token
        spelled = [(merge_pair(word, best, token), count) for word, count in spelled]
    return merges


def encode(words, merges):
    known = {}
    for word in set(words):
        pieces = list(word)
        while True:
            found = [pair for pair in zip(pieces, pieces[1:]) if pair in merges]
            if not found:
                break
            first = min(found, key=merges.get)
            pieces = merge_pair(pieces, first, merges[first])
        known[word] = pieces
    return torch.tensor([token for word in words for token in known[word]])


# --- the model ---


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.register_buffer("future", torch.ones(CONTEXT, CONTEXT).triu(1).bool())

    def forward(self, x):  # [rows, CONTEXT, HIDDEN]
        heads = self.qkv(x).view(*x.shape[:2], 3, NUM_HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        mixed = scores.masked_fill(self.future, -math.inf).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Experts(nn.Module):
    """Each token goes to its TOPK experts; none is ever dropped, however uneven the load."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(HIDDEN, NUM_EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(NUM_EXPERTS, HIDDEN, EXPERT_HIDDEN) / HIDDEN**0.5)
        self.down = nn.Parameter(
            torch.randn(NUM_EXPERTS, EXPERT_HIDDEN, HIDDEN) / EXPERT_HIDDEN**0.5
        )

    def forward(self, x):  # [tokens, HIDDEN]
        probabilities = self.router(x).softmax(-1)
        weights, topk_idx = probabilities.topk(TOPK)  # in descending order of weight
        weights = weights / weights.sum(-1, keepdim=True)
        order = topk_idx.flatten().sort(stable=True)[1]  # (token, k) pairs, grouped by expert
        counts = torch.bincount(topk_idx.flatten(), minlength=NUM_EXPERTS)
        groups = x[order // TOPK].split(counts.tolist())
        rows = torch.cat(
            [F.gelu(group @ up) @ down for group, up, down in zip(groups, self.up, self.down)]
        )
        rows = rows * weights.flatten()[order, None]
        combined = torch.zeros_like(x).index_add(0, order // TOPK, rows)
        # The balancing loss of Switch Transformers: 1 when the load is even, more when it is not.
        balance = NUM_EXPERTS * (counts / order.numel() * probabilities.mean(0)).sum()
        return combined, balance, topk_idx


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.position = nn.Parameter(torch.zeros(CONTEXT, HIDDEN))
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2 * NUM_LAYERS + 1))
        self.attentions = nn.ModuleList(Attention() for _ in range(NUM_LAYERS))
        self.experts = nn.ModuleList(Experts() for _ in range(NUM_LAYERS))
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens, targets):  # both [rows, CONTEXT]
        """Returns the loss per token in nats, the balancing loss summed over the layers, and the
        experts chosen, [tokens, layers, topk]."""
        x = self.embedding(tokens) + self.position
        balances, choices = [], []
        for layer in range(NUM_LAYERS):
            x = x + self.attentions[layer](self.norms[2 * layer](x))
            y, balance, topk_idx = self.experts[layer](self.norms[2 * layer + 1](x).flatten(0, 1))
            x = x + y.view_as(x)
            balances.append(balance)
            choices.append(topk_idx)
        logits = self.norms[-1](x) @ self.embedding.weight.t()
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return loss, torch.stack(balances).sum(), torch.stack(choices, dim=1)


# --- training and recording ---


def train(model, tokens, num_steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=num_steps, pct_start=0.1
    )
    began = time.monotonic()
    for step in range(1, num_steps + 1):
        first = torch.randint(len(tokens) - CONTEXT, (BATCH, 1))
        rows = tokens[first + torch.arange(CONTEXT + 1)]
        loss, balance, _ = model(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad()
        (loss + BALANCE_WEIGHT * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step == 1 or step % 20 == 0 or step == num_steps:
            seconds = time.monotonic() - began
            line = f"step {step}: loss {loss:.3f}, balance {balance:.3f}, {seconds:.0f} s"
            print(line, flush=True)


@torch.no_grad()
def observe(model, tokens, num_tokens):
    """Returns the loss on the first num_tokens tokens and the router's choices for them."""
    inputs = tokens[:num_tokens].view(-1, CONTEXT)
    targets = tokens[1 : num_tokens + 1].view(-1, CONTEXT)
    loss, _, choices = model(inputs, targets)
    return loss.item(), choices.numpy().astype("<i2")


def print_load(choices):
    for layer in range(NUM_LAYERS):
        load = np.bincount(choices[:, layer].ravel(), minlength=NUM_EXPERTS)
        print(f"layer {layer}: load max/mean {load.max() / load.mean():.2f}, "
              f"min/mean {load.min() / load.mean():.2f}, "
              f"experts used {np.count_nonzero(load)}/{NUM_EXPERTS}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="plain text file to learn from")
    parser.add_argument("--out", default="small-moe-topk.npy", help="where the recording goes")
    parser.add_argument("--tokens", type=int, default=4096, help="number of tokens to record")
    parser.add_argument("--steps", type=int, default=300, help="number of training steps")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.tokens < CONTEXT or args.tokens % CONTEXT != 0:
        parser.error(f"--tokens is {args.tokens}, not a positive multiple of {CONTEXT}")
    if args.steps < 1:
        parser.error(f"--steps is {args.steps}, not a positive number")

    torch.set_num_threads(1)  # one order of summation: the same machine repeats its choices
    torch.manual_seed(args.seed)
    with open(args.text, "rb") as file:
        raw = file.read()
    text = b" ".join(raw.split())  # line breaks are the printer's, not the author's
    cut = len(text) * 95 // 100
    train_words, held_out_words = split_words(text[:cut]), split_words(text[cut:])
    merges = learn_merges(train_words)
    train_tokens, held_out = encode(train_words, merges), encode(held_out_words, merges)
    if len(held_out) <= args.tokens:
        parser.error(f"'{args.text}' leaves {len(held_out)} held-out tokens, "
                     f"--tokens {args.tokens} needs {args.tokens + 1}")

    model = Model()
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"torch {torch.__version__}, text sha256 {hashlib.sha256(raw).hexdigest()}")
    print(f"{num_parameters} parameters, {len(train_tokens)} training tokens, "
          f"{len(held_out)} held out")
    loss_before, choices_before = observe(model, held_out, args.tokens)
    print(f"held-out loss before training {loss_before:.3f}")
    print_load(choices_before)
    train(model, train_tokens, args.steps)
    loss_after, choices = observe(model, held_out, args.tokens)
    print(f"held-out loss after training {loss_after:.3f}")
    print_load(choices)
    with open(args.out, "wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(choices), version=(1, 0))
    print(f"wrote {args.out}: {choices.dtype} {list(choices.shape)}")


if __name__ == "__main__":
    main()
