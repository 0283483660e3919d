"""Shows a run: a table for the terminal, JSON, a plot, and the table in docs/performance.md.

Owns: wording and drawing. Computes no figure.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.conditions import Conditions
from bench.targets import TARGETS, Round, Row, warning
from bench.workloads import Measure

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
COLUMNS = ("work", "Kafka", "StreamHouse", "ratio", "must be", "verdict", "limited by")
DETAIL_COLUMNS = ("work", "broker", "broker CPU", "cores broker / client", "more")
WIDTH_WITHOUT_TERMINAL = 150
COLOUR_PASS, COLOUR_MISS = "#2a7f62", "#c1543c"


def make_console() -> Console:
    """Wide enough for the table also where the output is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL)


def show(
    console: Console, rounds: Sequence[Round], rows: Sequence[Row], conditions: Conditions
) -> None:
    table = Table(*COLUMNS, title="StreamHouse beside Apache Kafka")
    for row in rows:
        colour = "green" if row.verdict == "PASS" else "yellow"
        *cells, verdict, limit = _cells(row)
        table.add_row(*cells, f"[{colour}]{verdict}[/]", limit)
    console.print(table)
    if said := warning(rounds):
        console.print(said, style="bold red", highlight=False)
    for line in conditions.lines():
        console.print(f"  {line}", style="dim", highlight=False)


def write_json(path: Path, rounds: Sequence[Round], rows: Sequence[Row], at: Conditions) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {
        "conditions": at.as_dict(),
        "warning": warning(rounds),
        "rows": [
            {
                "work": row.target.key,
                "title": row.title,
                "unit": row.unit,
                "kafka": row.kafka,
                "streamhouse": row.streamhouse,
                "ratio": row.ratio,
                "ratios": row.ratios,
                "must_be": row.target.wording(),
                "verdict": row.verdict,
                "limited_by": row.limited_by,
            }
            for row in rows
        ],
        "rounds": [
            {
                broker: {key: asdict(measure) for key, measure in measures.items()}
                for broker, measures in each.measures.items()
            }
            for each in rounds
        ],
    }
    path.write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")


def write_plot(path: Path, rows: Sequence[Row], conditions: Conditions) -> bool:
    """Draw the ratios; False when there is none to draw."""
    drawn = [(row, row.ratio) for row in rows if row.ratio is not None]
    if not drawn:
        return False
    # Imported here: a run without a comparison needs no plotting library.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 1.4 + 0.62 * len(drawn)))
    for at, (row, ratio) in enumerate(drawn):
        good = row.verdict == "PASS"
        # Bars grow from parity: to the right is more than Kafka, to the left less.
        axes.barh(at, ratio - 1, left=1, height=0.55, color=COLOUR_PASS if good else COLOUR_MISS)
        axes.vlines(row.target.ratio, at - 0.42, at + 0.42, colors="black", linewidth=2.2)
        axes.annotate(
            f"{ratio:.2f}x  ({row.target.wording()})",
            (max(ratio, 1.0, row.target.ratio), at),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    ratios = [ratio for _row, ratio in drawn]
    axes.set_xscale("log")
    axes.set_xlim(min(0.25, *ratios) * 0.8, max(4.0, *ratios) * 3)
    ticks = [
        each for each in (0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16) if each >= min(ratios) / 2
    ]
    axes.set_xticks(ticks, [f"{each:g}x" for each in ticks])
    axes.minorticks_off()
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(drawn)), [row.title for row, _ratio in drawn])
    axes.invert_yaxis()
    axes.set_xlabel("StreamHouse / Kafka (log scale); black mark: what must be reached")
    axes.set_title(
        f"{conditions.date}, {conditions.cores} cores, {conditions.filesystem}", fontsize=10
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return True


def write_docs(
    path: Path, rounds: Sequence[Round], rows: Sequence[Row], conditions: Conditions
) -> None:
    """Replace what stands between the markers. Raises ValueError if they are not there."""
    replace_between(path, BEGIN, END, markdown(rounds, rows, conditions))


def replace_between(path: Path, begin: str, end: str, body: str) -> None:
    text = path.read_text()
    if begin not in text or end not in text:
        raise ValueError(f"{path.name} has no markers {begin} and {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n{body}\n{end}{after}")


def markdown(rounds: Sequence[Round], rows: Sequence[Row], conditions: Conditions) -> str:
    said = warning(rounds)
    parts = [
        *([f"**{said}**"] if said else []),
        markdown_table(COLUMNS, [_cells(row) for row in rows]),
        "![ratios](../bench/results/latest.png)",
        "\n".join(f"- {line}" for line in conditions.lines()),
        "Details of the last round:",
        markdown_table(DETAIL_COLUMNS, _detail_rows(rounds[-1])),
    ]
    return "\n\n".join(parts)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(row: Row) -> list[str]:
    return [
        row.title,
        _number(row.kafka, row.unit),
        _number(row.streamhouse, row.unit),
        _ratio(row),
        row.target.wording(),
        row.verdict,
        row.limited_by,
    ]


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return "-"
    spread = f" ({min(row.ratios):.2f}-{max(row.ratios):.2f})" if len(row.ratios) > 1 else ""
    return f"{row.ratio:.2f}x{spread}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f} {unit}" if value < 10 else f"{value:,.0f} {unit}"


def _detail_rows(last: Round) -> list[list[str]]:
    return [
        _detail(target.key, broker, measures[target.key])
        for target in TARGETS
        for broker, measures in last.measures.items()
        if target.key in measures
    ]


def _detail(key: str, broker: str, measure: Measure) -> list[str]:
    details = measure.details
    has_cpu = "broker_cores" in details
    return [
        key,
        broker,
        f"{details['broker_cpu_ms_per_mb']:,.1f} ms/MB" if has_cpu else "-",
        f"{details['broker_cores']:.2f} / {details['client_cores']:.2f}" if has_cpu else "-",
        _more(key, details),
    ]


def _more(key: str, details: dict[str, float]) -> str:
    match key:
        case "latency":
            return ", ".join(
                f"{name} {details[field]:.2f} ms"
                for name, field in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p99_9_ms"))
            )
        case "start":
            return f"{details['fastest_ms']:.0f} to {details['slowest_ms']:.0f} ms"
        case "memory":
            return (
                f"idle {details['rss_idle_mib']:.0f} MiB, peak {details['rss_peak_mib']:.0f} MiB, "
                f"{details['growth_second_half']:+.1%} from the middle of the run to its end"
            )
        case _:
            return f"{details['records_per_s']:,.0f} records/s, {details['mb_per_s']:.1f} MB/s"
