"""Print what was timed."""

from typing import Any, NamedTuple

from surprise_memory.errors import need
from surprise_memory.tools.bench.timing import PARTS


class Ratio(NamedTuple):
    """A number beside what it should be at most."""

    name: str
    value: float
    text: str
    limit: float
    limit_text: str


def print_bench(result: dict[str, Any], console: Any) -> None:
    """Two tables: milliseconds by method and part, and ratios beside their limits."""
    print_settings(result, console)
    table = table_of("ms per rollout", *result["methods"])
    for name, cells in speed_rows(result):
        table.add_row(name, *cells)
    console.print(table)
    table = table_of("as a ratio", "here", "limit")
    # The limits were set for vectors in the paper's setting.
    has_limits = result["preset"] == "paper"
    for ratio in ratio_rows(result):
        if has_limits:
            table.add_row(ratio.name, coloured(ratio), f"≤ {ratio.limit_text}")
        else:
            table.add_row(ratio.name, ratio.text, "")
    console.print(table)


def coloured(ratio: Ratio) -> str:
    """Green within the limit, yellow above it."""
    colour = "yellow"
    if ratio.value <= ratio.limit:
        colour = "green"
    return f"[{colour}]{ratio.text}[/]"


def print_all(result: dict[str, Any], console: Any) -> None:
    """One row per method: its speed, its time over plain PPO's, and the memory's cost."""
    print_settings(result, console)
    speed = f"steps per {result['clock']} second"
    table = table_of("method", speed, "time / none", "memory's cost", "key log, MB")
    for name, method in result["methods"].items():
        cost = ""
        if "over_generator" in method:
            cost = f"{method['over_generator'] - 1:+.0%}"
        held = ""
        if name in result["key_log_bytes"]:
            held = f"{result['key_log_bytes'][name] / 1e6:.1f}"
        steps = f"{method['steps_per_second']:,.0f}"
        table.add_row(name, steps, f"{method['over_none']:.2f}", cost, held)
    console.print(table)


def print_bf16(result: dict[str, Any], console: Any) -> None:
    """One row per method and precision: its speed, and its time over float32's."""
    print_settings(result, console)
    speed = f"steps per {result['clock']} second"
    table = table_of("method", speed, "time / float32", "memory's cost")
    for name, method in result["methods"].items():
        cells = [f"{method['steps_per_second']:,.0f}", f"{method['over_float32']:.2f}"]
        cost = ""
        if name in result["sm_cost"]:
            cost = f"{result['sm_cost'][name]:+.0%}"
        table.add_row(name, *cells, cost)
    console.print(table)


def table_of(*names: str) -> Any:
    """A rich table; every column but the first holds numbers."""
    table = need("rich.table", extra="cli").Table(*names)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def print_settings(result: dict[str, Any], console: Any) -> None:
    """What was measured, and where."""
    agent_updates, agent_rows = result["agent_updates"]
    bonus_updates, bonus_rows = result["bonus_updates"]
    console.print(
        f"[bold]{result['env']}[/] · {result['preset']}: "
        f"{result['envs']} environments × {result['rollout']} steps, "
        f"{agent_updates} updates of {agent_rows} rows (agent), "
        f"{bonus_updates} of {bonus_rows} (bonus)\n"
        f"{result['machine']} · {result['threads']} thread(s) · "
        f"{result['clock']} time, median of {result['rollouts']} rollouts"
    )


def speed_rows(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The first table: a name, and one cell for each method."""
    methods = list(result["methods"].values())

    def row(name: str, key: str, factor: float = 1) -> tuple[str, list[str]]:
        return name, [f"{factor * method[key]:,.0f}" for method in methods]

    rows = [row(f"steps per {result['clock']} second", "steps_per_second")]
    if result["clock"] != "wall":
        rows.append(row("steps per wall second", "steps_per_wall_second"))
    for part in PARTS:
        rows.append((part, [f"{1e3 * method['seconds'][part]:,.0f}" for method in methods]))
    rows.append(row("total", "total_seconds", 1e3))
    if None not in [method["matmul_seconds"] for method in methods]:
        rows.append(row("bare multiplications", "matmul_seconds", 1e3))
    return rows


def ratio_rows(result: dict[str, Any]) -> list[Ratio]:
    """The second table."""
    whole = result["methods"]["rnd+sm"]
    memory = result["memory"]
    low, high = result["sm_cost_range"]
    cost = f"{result['sm_cost']:.0%} ({low:.0%} to {high:.0%})"
    rows = [Ratio("cost of SM over RND", result["sm_cost"], cost, 0.12, "12 %")]
    ratio = whole["matmul_ratio"]
    if ratio is not None:
        name = "rnd+sm over its bare multiplications"
        rows.append(Ratio(name, ratio, f"{ratio:.2f}", 1.5, "1.5"))
    share = whole["env_share"]
    rows.append(Ratio("environments' share of rnd+sm", share, f"{share:.1%}", 0.1, "10 %"))
    counted = f"{memory['key_log_bytes']:,} of {memory['snapshot_bytes']:,} bytes"
    held = f"{memory['share']:.1%} ({counted})"
    rows.append(Ratio("M's key log over snapshots", memory["share"], held, 0.02, "2 %"))
    return rows
