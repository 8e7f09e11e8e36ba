"""One page about one episode of a run: what each part of the bonus said at every step."""

from pathlib import Path

from surprise_memory.agents import Agent
from surprise_memory.errors import UserError, require
from surprise_memory.files import write_atomically
from surprise_memory.tools.episode import fits, trained
from surprise_memory.tools.inspector.ask import Answer, ask
from surprise_memory.tools.inspector.images import embed
from surprise_memory.tools.inspector.page import page
from surprise_memory.tools.inspector.record import Played, play
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir

RANDOM = "random actions"


def inspect_runs(
    runs: list[tuple[RunConfig, RunDir]], seed: int, longest: int, random: bool
) -> tuple[Played, list[Answer]]:
    """The first run's agent plays an episode; the bonus of every run is asked about its steps."""
    require(len(runs) >= 1, "runs", len(runs), "at least 1")
    first, _ = runs[0]
    for config, out in runs[1:]:
        if not fits(first.env, config):
            raise UserError(
                f"{out.path} was trained on {config.env}, whose observations or actions are not "
                f"those of {first.env}: inspect it alone."
            )
    parts = [trained(config, out, seed) for config, out in runs]
    if all(bonus is None for _, bonus in parts):
        paths = ", ".join(str(out.path) for _, out in runs)
        raise UserError(f"{paths} has no bonus (method none): choose another run.")
    player = f"the agent of {runs[0][1].path.name}"
    agent: Agent | None
    agent, bonus = parts[0]
    if random:
        player = RANDOM
        agent = bonus = None
    played = play(first.env, agent, bonus, player, seed, longest, first.fixed_seed)
    answers = []
    for (_, out), (_, bonus) in zip(runs, parts, strict=True):
        if bonus is not None:
            answers.append(ask(bonus, played.chunk, out.path.name))
    return played, answers


def write_page(played: Played, answers: list[Answer], path: Path) -> None:
    """Write the page: whole, or not at all."""
    text = page(played.recording, embed(played.frames), answers)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode()))


__all__ = ["inspect_runs", "write_page"]
