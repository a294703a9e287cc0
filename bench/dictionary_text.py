"""Writes train.txt, valid.txt and test.txt in the style of WikiText-2 (and of its size) from the dictionary GCIDE.

    apt-get download dict-gcide; dpkg-deb -x dict-gcide_*.deb gcide
    python bench/dictionary_text.py gcide/usr/share/dictd/gcide.dict.dz DIR

Pronunciations and what stands in brackets (etymologies, sources) are left out. Punctuation is split off, words that
the training text has fewer than three times become <unk>, as in WikiText-2. The parts are runs of 100 entries, so that
all of them have words of every letter.
"""

import collections
import gzip
import os
import re
import sys

SIZES = {"train": 2_088_628, "valid": 217_646, "test": 245_569}  # tokens of WikiText-2
RUN = 100  # entries


def entries(path):
    text = gzip.open(path, "rt", encoding="utf-8", errors="replace").read()
    for entry in re.split(r"\n\n(?=\S)", text):
        if not re.match(r"\S.* \\.*\\", entry.split("\n", 1)[0]):
            continue  # the dictionary's own front matter, and entries of other makers
        entry = re.sub(r"\\[^\\]*\\", " ", entry)
        while re.search(r"\[[^][]*\]", entry):
            entry = re.sub(r"\[[^][]*\]", " ", entry)
        words = re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+|[^\w\s{}\\*_]", entry)
        if len(words) > 4:
            yield words


def main():
    source, directory = sys.argv[1:]
    parts = {name: [] for name in SIZES}
    runs = list(entries(source))
    runs = [runs[i:i + RUN] for i in range(0, len(runs), RUN)]
    for i, run in enumerate(runs):  # each part has its share of every stretch of the alphabet
        done = (i + 1) / len(runs)
        lag = {name: size * done - sum(map(len, parts[name])) for name, size in SIZES.items()}
        name = max(lag, key=lambda part: lag[part] / SIZES[part])
        if lag[name] <= 0:
            continue
        parts[name] += run
    counts = collections.Counter(word for words in parts["train"] for word in words)
    os.makedirs(directory, exist_ok=True)
    for name, paragraphs in parts.items():
        with open(f"{directory}/{name}.txt", "w", encoding="utf-8") as file:
            for words in paragraphs:
                file.write(" " + " ".join(word if counts[word] > 2 else "<unk>" for word in words) + " \n")
        print(name, sum(map(len, parts[name])), "tokens")
    print(sum(count > 2 for count in counts.values()) + 1, "words")


main()
