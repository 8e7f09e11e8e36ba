"""The options of the recurrent DQN."""

from dataclasses import dataclass

from surprise_memory.errors import one_of, require, require_between, require_width


@dataclass(frozen=True)
class DQNConfig:
    """Recurrent DQN."""

    lr: float = 5e-4
    """Learning rate; 1e-4 in the paper."""
    adam_eps: float = 1e-3
    """Epsilon of Adam."""
    max_grad_norm: float = 40.0
    """Largest norm of the gradient; above it, the gradient is clipped."""
    gamma: float = 0.99
    """Discount of the sum of task reward and bonus."""
    n_step: int = 5
    """Rewards before the target's bootstrap."""
    int_coef: float = 0.1
    """Weight of the standardised bonus relative to the task's reward; 1 in the paper."""
    hidden: int = 128
    """Width of the layers and of the GRU; 512 in the paper."""
    burn_in: int = 10
    """Steps of a sequence that only refresh its state; 40 in the paper."""
    unroll: int = 40
    """Steps of a sequence that are learnt from, and of a collected block; 80 in the paper."""
    batch: int = 16
    """Sequences in an update."""
    updates: float = 1.0
    """Updates for each vector step."""
    target_rate: float = 0.005
    """Polyak rate of the target network, applied after every update."""
    replay: int = 200_000
    """Steps that are kept; 10^6 in the paper."""
    priority: float = 0.9
    """Exponent of the priorities."""
    importance: float = 0.6
    """Exponent of the importance weights."""
    epsilon: float = 0.4
    """Share of random actions: epsilon^(1 + 7 i / (B - 1)) in environment i of B."""
    epsilon_eval: float = 0.001
    """Share of random actions in evaluation."""
    pretrain_pairs: int = 1_000
    """Updates of a generator's encoder after the warm-up; 10,000 in the paper."""
    pretrain: int = 200
    """Updates of the bonus after the warm-up; 5,000 in the paper."""
    save_replay: str = "auto"
    """Whether checkpoints hold the replay: always, never, or auto (the last one, if below 1 GB)."""


def check_dqn(c: DQNConfig) -> None:
    """Refuse numbers that cannot be."""
    for name in ("lr", "adam_eps", "max_grad_norm", "target_rate"):
        value = getattr(c, name)
        require(value > 0, f"dqn.{name}", value, "above 0")
    require_width("dqn.hidden", c.hidden)
    require_between("dqn.batch", c.batch, 1, 65_536)
    require_between("dqn.n_step", c.n_step, 1, 1_000_000)
    require_between("dqn.unroll", c.unroll, 1, 1_000_000)
    require(0 < c.updates <= 10_000, "dqn.updates", c.updates, "above 0 and at most 10,000")
    for name in ("burn_in", "pretrain", "pretrain_pairs", "int_coef"):
        value = getattr(c, name)
        require(value >= 0, f"dqn.{name}", value, "at least 0")
    for name in ("gamma", "priority", "importance", "epsilon", "epsilon_eval", "target_rate"):
        value = getattr(c, name)
        require(0 <= value <= 1, f"dqn.{name}", value, "in [0, 1]")
    one_of(c.save_replay, ("auto", "always", "never"), "dqn.save_replay")
    reach = c.burn_in + c.n_step
    allowed = f"at most dqn.unroll = {c.unroll}: a sequence spans two blocks"
    require(reach <= c.unroll, "dqn.burn_in + dqn.n_step", reach, allowed)
