"""What both trainers of a bonus own: the optimiser, the random stream and the reward's scale."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from gymnasium import Space
from torch import Tensor, nn

from surprise_memory.bonus.config import BonusConfig
from surprise_memory.bonus.door import Door
from surprise_memory.bonus.limits import (
    check_carry,
    check_chunk,
    check_making,
    check_num_envs,
    check_state,
)
from surprise_memory.bonus.metrics import bonus_metrics
from surprise_memory.bonus.model import BonusModel
from surprise_memory.bonus.trace import Carry, Trace
from surprise_memory.errors import OtherVersion, UserError
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import HOST, own_mode, pick_device
from surprise_memory.nn.nets import set_precision
from surprise_memory.nn.persistence import with_persistence
from surprise_memory.types import Chunk


class Trainer(nn.Module):
    """A bonus that can be asked, and a step of its optimiser. Subclasses choose the data."""

    updates: Tensor

    def __init__(
        self,
        method: str,
        obs_shape: tuple[int, ...],
        num_envs: int,
        config: BonusConfig | None = None,
        seed: int = 0,
        action_space: Space[Any] | None = None,
        device: str | torch.device = "cpu",
        precision: str = "float32",
    ) -> None:
        super().__init__()
        place = pick_device(device)
        shape = check_making(method, obs_shape, num_envs, config, seed, action_space)
        self.method = method
        self.num_envs = num_envs
        self.model = BonusModel(method, shape, config or BonusConfig(), action_space, seed)
        set_precision(self.model, precision)
        self.model.to(place)
        self.door = Door(num_envs, shape, self.model.actions, self.config.channels)
        self.scaler = self.make_scaler().to(place)
        self.rng = torch.Generator().manual_seed(seed)  # on the host, wherever the networks are
        self.optimiser = make_optimiser(self.model)
        self.register_buffer("updates", torch.tensor(0, device=place))

    def make_scaler(self) -> Any:
        """What puts raw rewards on the policy's scale."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where it computes, and where its answers are."""
        return self.updates.device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `bonus.to(device)` calls: the optimiser comes along."""
        dtype = fn(torch.empty(0, dtype=torch.float32, device=HOST)).dtype
        if dtype in (torch.float16, torch.bfloat16):
            raise UserError(
                f"A bonus keeps its weights in float32 and cannot become {dtype}: leave it out of "
                'such calls. Bonus(..., precision="bf16") multiplies in bfloat16.'
            )
        super()._apply(fn, recurse)
        self.optimiser.load_state_dict(self.optimiser.state_dict())
        return self

    @property
    def config(self) -> BonusConfig:
        """The bonus's options."""
        return self.model.config

    def start(self, num_envs: int | None = None) -> Carry:
        """The carry before the first step. Asking works for any number of environments."""
        if num_envs is None:
            num_envs = self.num_envs
        check_num_envs(num_envs)
        return self.model.start(num_envs)

    def forward(self, chunk: Chunk, carry: Carry) -> tuple[Tensor, Trace, Carry]:
        """The raw reward (T, B) of a chunk, its trace, and the carry after it. Changes nothing."""
        check_chunk(chunk)
        check_carry(carry)
        with own_mode(self.device):
            answer: tuple[Tensor, Trace, Carry] = self.model(chunk.to(self.device), carry)
        return answer

    def reward(self, raw: Tensor) -> Tensor:
        """Raw rewards of any shape on the policy's scale."""
        scaled: Tensor = self.model.memory.beta * self.scaler(raw)
        return scaled

    def losses(self, trace: Trace, rows: Tensor) -> dict[str, Tensor]:
        """The model's losses on some flattened steps (K,)."""
        return self.model.losses(trace, rows, self.rng)

    def optimise(self, losses: dict[str, Tensor], rows: int = 1) -> None:
        """One step of Adam; what the losses do not reach stays where it is.

        `rows` is how many steps they are the mean of, which matters where other ranks have others.
        """
        if not losses:
            return
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        ranks.average_gradients(self.parameters(), rows)
        self.optimiser.step()

    def metrics(self, chunk: Chunk, trace: Trace, reward: Tensor) -> dict[str, float]:
        """What to log of a chunk that was paid `reward` (T, B)."""
        if not chunk.valid.any():
            return {}
        report = bonus_metrics(self.model, chunk, trace)
        report["reward_norm"] = float(reward[chunk.valid].mean())
        report["std"] = float(self.scaler.std)
        return {f"intrinsic/{name}": value for name, value in report.items()}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """All of it or, if something does not fit, nothing."""
        if assign:
            raise UserError(
                "A bonus owns its optimiser, which would go on with the weights of before: load "
                "without assign=True."
            )
        state_dict = with_persistence(state_dict, self)
        if strict:
            check_state(self, state_dict)
        before = copy.deepcopy(self.state_dict())
        try:
            return super().load_state_dict(state_dict, strict)
        except OtherVersion:
            super().load_state_dict(before)
            raise
        except Exception as error:  # parts from outside may raise anything
            super().load_state_dict(before)
            raise UserError(
                f"The state_dict does not fit this bonus ({type(error).__name__}: {error}). Load "
                "it into a bonus of the method, shapes and options that it was saved with."
            ) from error

    def get_extra_state(self) -> dict[str, Any]:
        """The optimiser and the random stream ride along in `state_dict()`."""
        return {"optimiser": self.optimiser.state_dict(), "rng": self.rng.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The other half of get_extra_state."""
        # A copy, because torch would share the moments.
        self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        check_moments(self.optimiser)
        self.rng.set_state(state["rng"].cpu())


def make_optimiser(model: BonusModel) -> torch.optim.Adam:
    """Adam over all parts, each with its learning rate."""
    c = model.config
    own = model.surprise.lr
    parts: list[tuple[nn.Module, float]] = [
        (model.surprise, own or c.lr),
        (model.memory, own or c.memory_lr),
    ]
    for _, stage in model.stage_items():
        parts.append((stage, stage.lr or c.lr))
    groups = []
    for part, lr in parts:
        trained = [p for p in part.parameters() if p.requires_grad]
        if trained:
            groups.append({"params": trained, "lr": lr})
    groups = groups or [{"params": []}]  # the method `none`
    # eps 1e-8: PPO's usual 1e-5 stalls losses whose gradients are small per parameter.
    return torch.optim.Adam(groups, eps=1e-8, fused=True)


def check_moments(optimiser: torch.optim.Optimizer) -> None:
    """Refuse moments of other parameters, which torch would find at the next step only."""
    for parameter, moments in optimiser.state.items():
        for name in ("exp_avg", "exp_avg_sq"):
            if moments[name].shape != parameter.shape:
                raise UserError(f"the optimiser's {name} has another shape than its parameter")
