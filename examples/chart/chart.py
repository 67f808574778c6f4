"""Draw what was sold of each product, from the Delta table `history`, into chart.svg."""

import sys
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable


def main(table: str, file: str) -> None:
    revenue: Counter[str] = Counter()
    for row in DeltaTable(table).to_pyarrow_table().to_pylist():
        revenue[row["product"]] += row["price"]
    most = max(revenue.values())
    bars = []
    for number, (product, amount) in enumerate(revenue.most_common()):
        y, width = 30 * number, 300 * amount / most
        bars.append(f'<rect x="90" y="{y}" width="{width:.0f}" height="22" fill="#2f74b5"/>')
        bars.append(f'<text x="0" y="{y + 16}">{product}</text>')
        bars.append(f'<text x="{95 + width:.0f}" y="{y + 16}">{amount:.2f}</text>')
    height = 30 * len(revenue)
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="460" height="{height}" font-family="sans-serif">'
    Path(file).write_text("\n".join([svg, *bars, "</svg>\n"]))
    print(dict(revenue))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:3] if len(sys.argv) > 2 else ("history", "chart.svg"))
