#!/usr/bin/env python3
"""Draws error and proof against the number of centres, from the Markdown table that compare.py prints.

    python3 benches/large/picture.py benches/large/centres.md docs/large.svg

Only rows of the program itself are used, one panel per data set. Both axes are logarithmic; the upper line is the proven
relative gap of the exact problem, the lower one the error on rows that were held out.
"""

import argparse
import math
import pathlib

WIDTH, HEIGHT = 360, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 30, 40
SERIES = [("gap", "proven gap", "#b5432a"), ("error", "held-out error", "#2a62b5")]


def results(text):
    """Data set -> [(centres, proven gap, error)], in the order of the table."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 10 and cells[2] == "margrave":
            point = {"centres": int(cells[3]), "gap": float(cells[7].split()[0]), "error": float(cells[9])}
            found.setdefault(f"{cells[0]}, {int(cells[1]):,} rows", []).append(point)
    return found


def ticks(low, high):
    return [10.0**k for k in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]


def panel(name, points, x0):
    xs = [math.log10(p["centres"]) for p in points]
    ys = [math.log10(max(p[key], 1e-9)) for p in points for key, _, _ in SERIES]
    (x_low, x_high), y_low, y_high = (min(xs), max(xs)), math.floor(min(ys)), math.ceil(max(ys))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value):
        return x0 + LEFT + wide * (math.log10(value) - x_low) / max(x_high - x_low, 1e-9)

    def y(value):
        return TOP + high * (y_high - math.log10(max(value, 1e-9))) / max(y_high - y_low, 1)

    out = [f'<text x="{x0 + LEFT}" y="18" font-weight="bold">{name}</text>']
    for tick in ticks(y_low, y_high):
        out.append(
            f'<path d="M{x0 + LEFT} {y(tick):.1f}h{wide}" stroke="#ddd"/>'
            f'<text x="{x0 + LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick * 100:g} %</text>'
        )
    for point in points:
        at = f"{x(point['centres']):.1f}"
        out.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{point["centres"]}</text>')
    out.append(f'<text x="{x0 + LEFT + wide / 2}" y="{HEIGHT - 6}" text-anchor="middle">centres</text>')
    for at, (key, label, colour) in enumerate(SERIES):
        path = " ".join(f"{x(p['centres']):.1f},{y(p[key]):.1f}" for p in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(p["centres"]):.1f}" cy="{y(p[key]):.1f}" r="3" fill="{colour}"/>' for p in points]
        out.append(
            f'<text x="{x0 + WIDTH - RIGHT}" y="{TOP + 12 + 14 * at}" text-anchor="end" fill="{colour}">{label}</text>'
        )
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("svg", type=pathlib.Path)
    args = parser.parse_args()
    panels = results(args.table.read_text())
    width = WIDTH * max(len(panels), 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="11" fill="#222">',
        f'<rect width="{width}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for at, (name, points) in enumerate(panels.items()):
        lines += panel(name, points, at * WIDTH)
    args.svg.write_text("\n".join([*lines, "</svg>", ""]))


if __name__ == "__main__":
    main()
