"""The options of PPO."""

from dataclasses import dataclass

from surprise_memory.errors import require, require_between, require_width


@dataclass(frozen=True)
class PPOConfig:
    """Two-headed PPO."""

    lr: float = 3e-4
    """Learning rate."""
    gamma_ext: float = 0.999
    """Discount of the task's reward, whose return ends with an episode."""
    gamma_int: float = 0.99
    """Discount of the bonus."""
    end_discount: float = 0.9
    """What is left of the bonus's return across an end that the task neither rewards nor punishes:
    1 goes on as if nothing had happened, as in the paper; 0 stops there."""
    lam: float = 0.95
    """Lambda of GAE, for both rewards."""
    ext_coef: float = 2.0
    """Weight of the task's advantage; 0 trains on the bonus alone."""
    int_coef: float = 1.0
    """Weight of the bonus's advantage (beta), before it fades."""
    fade: float = 0.8
    """How much of that weight goes while the task pays its best; 0 is none, as in the paper."""
    random_actions: float = 0.03
    """Share of uniform actions, if Discrete, while the task punishes and does not pay; 0 in the
    paper."""
    reward_clip: float = 0.0
    """Size at which the task's reward is clipped before learning; 0 is never, 1 in the paper."""
    clip: float = 0.2
    """Clip range of the probability ratio (epsilon)."""
    entropy: float = 0.01
    """Weight of the policy's entropy; 0.001 in the paper."""
    value_coef: float = 0.5
    """Weight of the two value losses."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatches: int = 16
    """Updates per pass (called "minibatch size" in the paper's tables)."""
    max_grad_norm: float = 0.5
    """Largest norm of the gradient; 0 does not clip it, as in the paper."""
    normalise_advantage: bool = True
    """Whether each minibatch's advantages are standardised; not in the paper."""
    bootstrap_time_limits: bool = True
    """Whether time limits bootstrap from the final observation; in the paper they are ends."""
    hidden: int = 256
    """Width of the fully connected layers."""


def check_ppo(c: PPOConfig, intrinsic: bool) -> None:
    """Refuse numbers that cannot be."""
    require(0 <= c.gamma_ext <= 1, "ppo.gamma_ext", c.gamma_ext, "in [0, 1]")
    require(0 <= c.gamma_int <= 1, "ppo.gamma_int", c.gamma_int, "in [0, 1]")
    require(0 <= c.end_discount <= 1, "ppo.end_discount", c.end_discount, "in [0, 1]")
    require(0 <= c.lam <= 1, "ppo.lam", c.lam, "in [0, 1]")
    for name in ("fade", "random_actions"):
        value = getattr(c, name)
        require(0 <= value <= 1, f"ppo.{name}", value, "in [0, 1]")
    for name in ("lr", "clip"):
        value = getattr(c, name)
        require(value > 0, f"ppo.{name}", value, "above 0")
    weights = ("ext_coef", "int_coef", "entropy", "value_coef")
    for name in (*weights, "reward_clip", "max_grad_norm"):
        value = getattr(c, name)
        require(value >= 0, f"ppo.{name}", value, "at least 0")
    require_between("ppo.epochs", c.epochs, 1, 10_000)
    require(c.minibatches >= 1, "ppo.minibatches", c.minibatches, "at least 1")
    require_width("ppo.hidden", c.hidden)
    allowed = "above 0 without a bonus: nothing is left to learn"
    require(c.ext_coef != 0 or intrinsic, "ppo.ext_coef", c.ext_coef, allowed)
