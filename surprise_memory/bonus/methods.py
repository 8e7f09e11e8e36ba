"""What methods there are, how they are spelt, and every option of a bonus."""

from dataclasses import dataclass, field

from surprise_memory.errors import UserError, unknown
from surprise_memory.memory import MEMORIES, CountsConfig, MemoryConfig
from surprise_memory.surprise import (
    SURPRISES,
    AEConfig,
    DisagreementConfig,
    ICMConfig,
    LWMConfig,
    NGUConfig,
    RNDConfig,
)


@dataclass(frozen=True)
class BonusConfig:
    """The intrinsic reward and how it learns."""

    rnd: RNDConfig = field(default_factory=RNDConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    icm: ICMConfig = field(default_factory=ICMConfig)
    ngu: NGUConfig = field(default_factory=NGUConfig)
    ae: AEConfig = field(default_factory=AEConfig)
    disagreement: DisagreementConfig = field(default_factory=DisagreementConfig)
    lwm: LWMConfig = field(default_factory=LWMConfig)
    counts: CountsConfig = field(default_factory=CountsConfig)
    obs_norm: str = "whiten"
    """What the generator sees: whiten (running mean and std, clipped at 5) or scale (times obs_scale)."""
    obs_scale: float = 0.3
    """The factor of obs_norm = scale."""
    power: int = 1
    """Reward |v|^power; the paper has 1, most code 2. The same for a generator with and without memory."""
    expect: bool = False
    """Pay only what exceeds the bonus to be expected from state and action, so that noise, always new, is no news."""
    expect_lr: float = 5e-3
    """Adam's rate for that expectation."""
    loss: str = "squared"
    """The generator's loss: norm (as printed) or squared."""
    gamma: float = 0.99
    """Discount of the return whose std scales the reward."""
    scale_momentum: float | None = 0.9
    """Window of that std and of NGU's statistics: 0.9 is about the last ten rollouts, None (the paper) the whole past."""
    lr: float = 1e-4
    """Adam's rate for the generator."""
    memory_lr: float = 1e-3
    """Adam's rate for the memory's Q, V and W."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatches: int = 16
    """Updates per pass."""
    proportion: float = 0.25
    """Share of a rollout drawn in each pass."""


def split_method(method: str) -> tuple[str, str]:
    """'rnd+sm' -> ('rnd', 'sm'); a generator alone has memory 'none'."""
    surprise, _, memory = method.partition("+")
    return surprise, memory or "none"


def backbone(method: str) -> str:
    """The agent that a method was made for: ppo, or dqn."""
    surprise, _ = split_method(method)
    return SURPRISES[surprise].agent if surprise in SURPRISES else "ppo"


def methods() -> dict[str, str]:
    """Every method and its line of help."""
    table = {"none": "no bonus: plain PPO, or plain recurrent DQN with --agent dqn"}
    for surprise, entry in SURPRISES.items():
        table[surprise] = entry.about
        if entry.takes_memory:
            table |= {
                f"{surprise}+{name}": memory.about
                for name, memory in MEMORIES.items()
                if name != "none"
            }
    return table


def check_method(method: str) -> None:
    """Refuse a method that does not exist."""
    if method not in methods():
        raise UserError(
            unknown(method, list(methods()), "method")
            + " `surprise-memory methods` lists them all."
        )
