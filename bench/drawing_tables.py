#!/usr/bin/env python3
"""Makes the tables that src/report/ draws with.

    drawing_tables.py coastlines naturalearth_lowres.shp >src/report/coastlines.c
    drawing_tables.py font futural.jhf >src/report/font.c

The first file is in geopandas 0.14.4 (PyPI), in geopandas/datasets/naturalearth_lowres: the countries of Natural Earth
at 1:110m, which are in the public domain. An edge that only one country has is a coast. The second file is in Debian's
package hershey-fonts-data.
"""

import collections
import struct
import sys

BASE, ZERO = 91, ord("$")
MOST = BASE // 2  # of the steps to the next point, in one digit
WIDTH = 120

FONT_NOTICE = """\
/* The Hershey font Simplex Roman, made by bench/drawing_tables.py.
 *
 * The Hershey Fonts were originally created by Dr. A. V. Hershey while working at the U. S. National Bureau of
 * Standards. The format of the Font data in this distribution was originally created by James Hurt, Cognition, Inc.,
 * 900 Technology Park Drive, Billerica, MA 01821 (mit-eddie!ci-dandelion!hurt). */"""


def rings(path):
    """The rings of a file of polygons, each a list of (longitude, latitude)."""
    data = open(path, "rb").read()
    at = 100
    while at < len(data):
        words = struct.unpack(">ii", data[at : at + 8])[1]
        record = data[at + 8 : at + 8 + 2 * words]
        at += 8 + 2 * words
        parts, points = struct.unpack("<ii", record[36:44])
        starts = struct.unpack(f"<{parts}i", record[44 : 44 + 4 * parts]) + (points,)
        numbers = struct.unpack(f"<{2 * points}d", record[44 + 4 * parts :])
        ring = list(zip(numbers[::2], numbers[1::2]))
        for first, last in zip(starts, starts[1:]):
            yield ring[first:last]


def is_coast(edge):
    """Not where the map ends: Antarctica's polygon goes round it."""
    (x0, y0), (x1, y1) = edge
    return not (abs(x0) > 179.99 and abs(x1) > 179.99) and not (y0 < -89.9 or y1 < -89.9)


def coastlines(path):
    """Lines, as long as they can be, of edges that one country has alone."""

    def place(point):
        return round(point[0], 2), round(point[1], 2)

    edges = [edge for ring in rings(path) for edge in zip(ring, ring[1:])]
    owners = collections.Counter(frozenset(map(place, edge)) for edge in edges)
    onward = collections.defaultdict(list)
    for edge in edges:
        if owners[frozenset(map(place, edge))] == 1 and is_coast(edge):
            onward[place(edge[0])].append(edge[1])
    ends = {place(end) for after in onward.values() for end in after}
    for start in sorted(onward, key=lambda point: point in ends):  # those that no edge leads to come first
        line = [start]
        while onward[place(line[-1])]:
            line.append(onward[place(line[-1])].pop())
        if len(line) > 1:
            yield line


def number(share):
    return round(min(1, max(0, share)) * (BASE * BASE - 1))


def encode(points):
    """A line, as src/report/drawing.h describes it."""
    last = None
    for point in points:
        steps = [a - b for a, b in zip(point, last)] if last else [BASE * BASE]
        if max(map(abs, steps)) <= MOST:
            yield "".join(chr(ZERO + MOST + step) for step in steps)
        else:
            yield ("!" if last else " ") + "".join(chr(ZERO + n // BASE) + chr(ZERO + n % BASE) for n in point)
        last = point


def literal(text):
    """The inside of a C string; "??" would begin a trigraph."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?")


def print_coastlines(path):
    print('#include "report/drawing.h"\n')
    print("/* Natural Earth, 1:110m (public domain); made by bench/drawing_tables.py. */")
    print("const char vt_coastlines[] =\n    // clang-format off")
    texts = []
    for line in coastlines(path):
        points = [(number((x + 180) / 360), number((y + 90) / 180)) for x, y in line]
        points = [point for point, before in zip(points, [None] + points) if point != before]
        if len(points) > 2:
            texts += encode(points)
    print_points(texts)
    print("// clang-format on")


def print_points(points):
    line = ""
    for point in map(literal, points):
        if len(line) + len(point) > WIDTH - 6:
            print(f'    "{line}"')
            line = ""
        if line.endswith("?") and point.startswith("?"):  # no trigraph
            point = "\\" + point
        line += point
    print(f'    "{line}";')


def print_font(path):
    text = open(path).read().split("\n")
    glyphs = []
    for line in text:  # a glyph may go on in the next line
        if line[:5] == "12345" or (line[:5].strip().isdigit() and line[5:8].strip().isdigit()):
            glyphs.append(line[8:])
        elif line:
            glyphs[-1] += line
    glyphs[ord("-") - ord(" ")] = "KYNRVR"  # theirs is as wide as a plus
    print('#include "report/drawing.h"\n')
    print(FONT_NOTICE)
    print("const char *const vt_font_glyphs[VT_FONT_LAST - VT_FONT_FIRST + 1] = {\n    // clang-format off")
    print_glyphs(glyphs[:95])
    print("    // clang-format on\n};")


def print_glyphs(glyphs):
    """As many as fit into a line, and behind them a comment that says which they are; long ones take two lines."""
    line, comment = "    ", "/*"
    for code, glyph in enumerate(glyphs, ord(" ")):
        cut = glyph.rfind(" ", 0, 100) if len(glyph) > 100 else 0
        text, name = f'"{literal(glyph[cut:])}", ', " space" if code == ord(" ") else " " + chr(code)
        if comment != "/*" and (cut > 0 or len(line + text + comment + name + " */") > WIDTH):
            print(line + comment + " */")
            line, comment = "    ", "/*"
        if cut > 0:
            print(f'    "{literal(glyph[:cut])}"')
        line += text
        comment += name
    print(line + comment + " */")


if len(sys.argv) != 3 or sys.argv[1] not in ("coastlines", "font"):
    sys.exit(__doc__)
(print_coastlines if sys.argv[1] == "coastlines" else print_font)(sys.argv[2])
