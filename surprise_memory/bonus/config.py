"""Every option of a bonus, those of parts registered from outside included."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from surprise_memory.bonus.frames import CHANNELS
from surprise_memory.errors import (
    UserError,
    check_options,
    choose,
    one_of,
    require,
    require_between,
)
from surprise_memory.memory import CountsConfig, MemoryConfig
from surprise_memory.nn.nets import LOSSES
from surprise_memory.registry import OPTIONS
from surprise_memory.stages import ExpectConfig, GateConfig, NGUConfig, RecogniseConfig, TrustConfig
from surprise_memory.surprise import AEConfig, DisagreementConfig, ICMConfig, LWMConfig, RNDConfig


@dataclass(frozen=True)
class BonusConfig:
    """The intrinsic reward and how it learns.

    >>> from surprise_memory import BonusConfig, RNDConfig
    >>> BonusConfig(rnd=RNDConfig(n=128), lr=3e-4).rnd.n
    128
    """

    rnd: RNDConfig = field(default_factory=RNDConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    icm: ICMConfig = field(default_factory=ICMConfig)
    ngu: NGUConfig = field(default_factory=NGUConfig)
    ae: AEConfig = field(default_factory=AEConfig)
    disagreement: DisagreementConfig = field(default_factory=DisagreementConfig)
    lwm: LWMConfig = field(default_factory=LWMConfig)
    counts: CountsConfig = field(default_factory=CountsConfig)
    expect: ExpectConfig = field(default_factory=ExpectConfig)
    trust: TrustConfig = field(default_factory=TrustConfig)
    recognise: RecogniseConfig = field(default_factory=RecogniseConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    channels: str = "newest"
    """What is seen of an image: newest (of a stack of frames, in grey) or all (as they are)."""
    obs_norm: str = "whiten"
    """How the generator sees observations: whiten (running mean and std, clipped at 5) or scale."""
    obs_scale: float = 0.3
    """Factor of obs_norm = scale."""
    ignore_noise: bool = True
    """Whether features that carry nothing over to the next step are hidden from the bonus."""
    power: int = 1
    """Power p of the reward |v|^p, also without a memory: 1 in the paper, 2 in most code."""
    loss: str = "squared"
    """Generator's loss: norm (as printed) or squared."""
    scale_filtered: bool = False
    """Measure the scale of a rollout after the filters (recognise, gate) instead of before."""
    gamma: float = 0.99
    """Discount of the return whose std scales the reward."""
    scale_momentum: float | None = 0.9
    """Window of that std and of NGU's statistics: 0.9 is ten rollouts, None the whole past."""
    lr: float = 1e-4
    """Learning rate of the generator."""
    memory_lr: float = 1e-3
    """Learning rate of the memory's Q, V and W."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatches: int = 16
    """Updates per pass."""
    proportion: float = 0.25
    """Share of a rollout that is drawn in each pass."""


def check_config(c: BonusConfig) -> None:
    """Refuse numbers that cannot be."""
    check_options(c)
    require(c.power in (1, 2), "power", c.power, "1 or 2")
    require(0 < c.proportion <= 1, "proportion", c.proportion, "above 0 and at most 1")
    require_between("epochs", c.epochs, 1, 10_000)
    require(c.minibatches >= 1, "minibatches", c.minibatches, "at least 1")
    require(c.lr > 0, "lr", c.lr, "above 0")
    require(c.obs_scale > 0, "obs_scale", c.obs_scale, "above 0")
    require(c.memory_lr > 0, "memory_lr", c.memory_lr, "above 0")
    one_of(c.loss, LOSSES, "loss")
    one_of(c.channels, CHANNELS, "channels")


_EXTENDED: dict[tuple[Any, ...], type[BonusConfig]] = {}


def config_type() -> type[BonusConfig]:
    """BonusConfig with a field for the options of each part that was registered from outside."""
    if not OPTIONS:
        return BonusConfig
    key = tuple(OPTIONS.items())
    if key not in _EXTENDED:
        for f in dataclasses.fields(BonusConfig):
            if f.name in OPTIONS:
                raise UserError(
                    f"There is an option '{f.name}' already: register your part by another name."
                )
        added = [(name, kind, field(default_factory=kind)) for name, kind in OPTIONS.items()]
        made = dataclasses.make_dataclass("BonusConfig", added, bases=(BonusConfig,), frozen=True)
        _EXTENDED[key] = made
    return _EXTENDED[key]


def complete(config: BonusConfig) -> BonusConfig:
    """The same options, with defaults for those of parts registered from outside."""
    kind = config_type()
    if isinstance(config, kind):
        return config
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return kind(**values)


def with_options(config: Any, values: Any) -> Any:
    """A copy of a config with some options replaced, as a dictionary, nested where it nests.

    >>> with_options(BonusConfig(), {"lr": 3e-4, "memory": {"slots": 64}}).memory.slots
    64
    """
    require(isinstance(values, dict), "config", values, "a dictionary of options")
    known = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    changed = {}
    for name, value in values.items():
        now = choose(known, name, "option")
        changed[name] = with_options(now, value) if dataclasses.is_dataclass(now) else value
    return dataclasses.replace(config, **changed)
