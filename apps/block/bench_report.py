"""Writes the numbers of bench.py as an HTML page, beside the published ones of another block store."""

import html
import math

# CurveBS over bRPC, fio with 4 KB random writes, published by its authors: depth, then requests per second, and mean
# and 90th percentile of the completion latency in us, by RDMA (UCX, two network cards) and by TCP.
PUBLISHED = (
    (1, 3983, 247, 258, 2611, 379, 424),
    (2, 7908, 249, 258, 5313, 372, 408),
    (4, 15900, 247, 251, 10500, 376, 404),
    (8, 30800, 256, 249, 19700, 403, 429),
    (16, 55300, 286, 260, 35300, 450, 474),
    (20, 65200, 304, 269, 41500, 478, 506),
    (24, 73800, 322, 273, 47500, 502, 529),
    (28, 80600, 344, 285, 52300, 532, 562),
    (32, 87300, 363, 297, 57000, 558, 578),
    (64, 116000, 549, 510, 78800, 808, 1020),
    (96, 128000, 745, 1254, 89900, 1063, 1909),
    (128, 137000, 932, 2180, 96300, 1324, 2999),
)
# Servers, and those that they share all with but the transport, as the published pair does.
COMPARED = {"hawser, shared memory": "hawser, TCP", "hawser, UCX": "hawser, TCP", "hawser, RDMA": "hawser, TCP",
            "hawser device, RDMA": "hawser device, TCP", "NVMe, RDMA": "NVMe, TCP"}
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#7f7f7f", "#bcbd22", "#17becf")
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 360, 70, 40
STYLE = ("body{font:14px sans-serif;margin:2em auto;max-width:75em}table{border-collapse:collapse;margin:1em 0}"
         "td,th{border:1px solid #bbb;padding:3px 8px;text-align:right}caption{text-align:left;font-weight:bold}"
         "svg{margin-right:1em}")


def lines_chart(title, lines):
    """`lines`: name -> [(depth, value)]. Both axes are logarithmic."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    depths = sorted({depth for depth, _ in points})
    low = math.floor(math.log10(min(value for _, value in points)))
    high = max(math.ceil(math.log10(max(value for _, value in points))), low + 1)
    span = max(math.log2(depths[-1] / depths[0]), 1)

    def x_of(depth):
        return LEFT + math.log2(depth / depths[0]) / span * (WIDTH - LEFT - 20)

    def y_of(value):
        return HEIGHT - BOTTOM - (math.log10(value) - low) / (high - low) * (HEIGHT - BOTTOM - 30)

    parts = [f'<svg width="{WIDTH}" height="{HEIGHT + 18 * len(lines)}" font-size="12"><text x="{LEFT}" y="16">'
             f"{html.escape(title)}</text>"]
    for exponent in range(low, high + 1):
        y = y_of(10 ** exponent)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 20}" stroke="#ddd"/><text x="{LEFT - 6}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{10 ** exponent:,}</text>')
    for depth in depths:
        if depth & (depth - 1) == 0:
            parts.append(f'<text x="{x_of(depth):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{depth}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x_of(depth):.1f},{y_of(value):.1f}" for depth, value in line)
        dashes = ' stroke-dasharray="6 4"' if name.startswith("published") else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
                     f'<text x="{LEFT}" y="{HEIGHT + 18 * number}" fill="{colour}">{html.escape(name)}</text>')
    return "".join(parts) + "</svg>"


def table(caption, head, rows):
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (f"<table><caption>{html.escape(caption)}</caption><tr>"
            + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + f"</tr>{cells}</table>")


def show(cell):
    return f"{cell['iops']:,.0f}, {cell['clat_us']:.0f}, {cell['clat_p90_us']:.0f}"


def random_table(rw, loads, medians):
    compared = {name: base for name, base in COMPARED.items() if name in medians and base in medians}
    published = {row[0]: row for row in PUBLISHED} if rw == "randwrite" else {}
    head = ["depth", *medians] + [f"{name} / TCP" for name in compared]
    head += ["published RDMA", "published TCP", "published RDMA / TCP"] if published else []
    rows = []
    for number, (how, size, depth) in enumerate(loads):
        if how != rw or size != "4k":
            continue
        row = [str(depth)] + [show(cells[number]) for cells in medians.values()]
        row += [f"{medians[name][number]['iops'] / medians[base][number]['iops']:.2f}"
                for name, base in compared.items()]
        if depth in published:
            _, iops, mean, p90, tcp_iops, tcp_mean, tcp_p90 = published[depth]
            row += [f"{iops:,}, {mean}, {p90}", f"{tcp_iops:,}, {tcp_mean}, {tcp_p90}", f"{iops / tcp_iops:.2f}"]
        elif published:
            row += [""] * 3
        rows.append(row)
    return table(f"{rw}, 4 KB: requests/s, mean and 90th percentile of the completion latency in us", head, rows)


def chart(title, key, column, loads, medians):
    lines = {name: [(depth, cells[number][key]) for number, (how, size, depth) in enumerate(loads)
                    if how == "randwrite" and size == "4k"] for name, cells in medians.items()}
    lines["published RDMA"] = [(row[0], row[column]) for row in PUBLISHED]
    lines["published TCP"] = [(row[0], row[column + 3]) for row in PUBLISHED]
    return lines_chart(title, lines)


def page(loads, medians, conditions):
    """`medians`: name of a server -> the median numbers of each load."""
    sequential = [[f"{rw} {size}, depth {depth}"] + [f"{cells[number]['mib_s']:,.0f}" for cells in medians.values()]
                  for number, (rw, size, depth) in enumerate(loads) if size != "4k"]
    return ("<!doctype html><meta charset='utf-8'><title>hawser-block under fio</title>"
            f"<style>{STYLE}</style><h1>hawser-block under fio</h1><p>{html.escape(conditions)}</p>"
            "<p>The published numbers are those of CurveBS over bRPC: other disks, replication and network cards. Compare "
            "the ratios of two transports, and not the numbers.</p>"
            + chart("4 KB random writes: requests/s by depth", "iops", 1, loads, medians)
            + chart("4 KB random writes: mean latency in us by depth", "clat_us", 2, loads, medians)
            + random_table("randwrite", loads, medians) + random_table("randread", loads, medians)
            + table("Sequential: MiB/s", ["load", *medians], sequential) + "\n")
