"""rsl_rl's own runner with the bonus: what is paid, for which successor, what is saved."""

import copy
import warnings

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from surprise_memory import Bonus, BonusConfig, RNDConfig
from surprise_memory.bonus.check.promises import equal
from surprise_memory.errors import UserError

pytest.importorskip("rsl_rl", reason="pip install 'surprise-memory[rsl-rl]'")
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from surprise_memory.adapters.rsl_rl import SurprisePPO

B, T = 4, 6
SMALL = {"rnd": {"n": 16, "hidden": 32}, "minibatches": 2, "epochs": 1}
SAME = BonusConfig(rnd=RNDConfig(n=16, hidden=32), minibatches=2, epochs=1)


class Walk(VecEnv):
    """Points pushed by their actions; they reset in the same step, and tell the last observation.

    Each has its own length of episodes, and a camera that sees where it is.
    """

    num_actions = 2
    device = "cpu"
    cfg = {}  # noqa: RUF012 (rsl_rl wants one)

    def __init__(self, lengths=(3, 4, 5, 6), final=True):
        self.num_envs = len(lengths)
        self.max_episode_length = torch.tensor(lengths)
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        self.place = torch.zeros(self.num_envs, 2)
        self.final = final
        self.told = []  # (obs, action, true successor, done)

    def look(self):
        image = self.place.sum(1)[:, None, None, None].expand(-1, 1, 8, 8).contiguous()
        age = self.episode_length_buf[:, None].float()
        groups = {"policy": self.place.clone(), "age": age, "camera": image}
        return TensorDict(groups, batch_size=[self.num_envs])

    def get_observations(self):
        return self.look()

    def step(self, actions):
        before = self.look()
        self.place = self.place + actions.clamp(-1, 1)
        self.episode_length_buf = self.episode_length_buf + 1
        last = self.look()
        done = self.episode_length_buf >= self.max_episode_length
        self.told.append((before, actions.clone(), last, done.clone()))
        self.place = torch.where(done[:, None], 0.0, self.place)
        self.episode_length_buf = torch.where(done, 0, self.episode_length_buf)
        extras = {"time_outs": torch.zeros(self.num_envs, dtype=torch.bool)}
        if self.final and done.any():
            extras["final_obs"] = last
        return self.look(), torch.ones(self.num_envs), done.long(), extras


def make(env=None, surprise=None, obs_groups=None, log_dir=None, device="cpu", **algorithm):
    """A runner of rsl_rl, made from its configuration alone."""
    model = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu"}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    cfg = {
        "num_steps_per_env": T,
        "save_interval": 100,
        "obs_groups": obs_groups or {"actor": ["policy"], "critic": ["policy"]},
        "actor": model | {"distribution_cfg": gaussian},
        "critic": dict(model),
        "algorithm": {
            "class_name": "surprise_memory.adapters.rsl_rl:SurprisePPO",
            "num_learning_epochs": 1,
            "num_mini_batches": 2,
        }
        | algorithm,
    }
    if surprise is not None:
        cfg["algorithm"]["surprise"] = surprise
    torch.manual_seed(0)
    return OnPolicyRunner(env or Walk(), cfg, log_dir=log_dir, device=device)


@pytest.fixture(autouse=True)
def pays_at_once(monkeypatch):
    """Two updates are enough to find the scale."""
    monkeypatch.setattr("surprise_memory.nn.reward_scale.LEVEL_STEPS", 1)


def stored_rewards(runner, iterations):
    """Run; returns the rewards (iterations * T, B) that PPO stored, without its bootstrapping."""
    rewards, add = [], runner.alg.storage.add_transition

    def spy(transition):
        rewards.append(transition.rewards.clone())
        add(transition)

    runner.alg.storage.add_transition = spy
    runner.learn(iterations)
    return torch.stack(rewards)


@pytest.mark.parametrize("method", ["rnd+sm", "icm"])
@pytest.mark.parametrize("final", [True, False])
def test_the_rewards_that_ppo_learns_from_have_the_bonus_of_the_true_successors(method, final):
    env = Walk(final=final)
    options = {"method": method, "beta": 0.5, "ext": 2.0, "config": SMALL}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        runner = make(env, options)
        rewards = stored_rewards(runner, 5)
    told = [w for w in told if "final_obs" in str(w.message)]
    assert len(told) == (0 if final else 1)
    twin = Bonus(method, (2,), B, SAME, action_space=Box(-np.inf, np.inf, (2,)))
    ends = 0
    for t, (before, action, last, done) in enumerate(env.told):
        valid = torch.ones(B, dtype=torch.bool) if final else ~done
        r_int = twin.step(before["policy"], action, last["policy"], done, valid)
        assert torch.equal(rewards[t], 2.0 + 0.5 * r_int)
        ends += int(done.sum())
        if not final:
            assert not r_int[done].any()
        elif t >= 2 * T:
            assert (r_int > 0).all()
        if t % T == T - 1:
            twin.update()
    assert ends > 20 and equal(twin.state_dict(), runner.alg.bonus.state_dict())
    assert not runner.alg.bonus.steps.first.is_inference()  # else nobody could write to it


def test_by_its_class_alone_it_is_the_default_method_and_what_it_tells_is_logged(tmp_path):
    runner = make(log_dir=str(tmp_path))
    assert runner.alg.bonus.method == "rnd+sm+trust+recognise"
    assert isinstance(runner.alg, SurprisePPO)
    logged = {}
    add = runner.logger.log

    def spy(**values):
        logged.update(values["loss_dict"])
        add(**values)

    runner.logger.log = spy
    runner.learn(2)
    assert {"value", "surrogate", "intrinsic/novelty", "intrinsic/reward_norm"} <= set(logged)
    assert set(runner.logger.rewbuffer) <= {3.0, 4.0, 5.0, 6.0}  # the task's returns alone


def test_the_set_surprise_of_observation_groups_is_what_it_sees():
    for groups, shape in ((["age"], (1,)), (["policy", "age"], (3,)), (["camera"], (1, 8, 8))):
        env = Walk()
        sets = {"actor": ["policy"], "critic": ["policy", "age"], "surprise": groups}
        runner = make(env, {"method": "rnd", "config": SMALL}, sets)
        seen = []
        step = runner.alg.bonus.step
        runner.alg.bonus.step = lambda *row, step=step, seen=seen: seen.append(row) or step(*row)
        runner.learn(1)
        for (obs, _, next_obs, _, _), (before, _, last, _) in zip(seen, env.told, strict=True):
            expected = [torch.cat([x[g] for g in groups], -1) for x in (before, last)]
            assert obs.shape == (B, *shape)
            assert torch.equal(obs, expected[0]) and torch.equal(next_obs, expected[1])


def test_what_was_saved_goes_on_as_if_nothing_had_happened(tmp_path):
    """All episodes end with the second rollout, so that new environments are where the old are."""
    make_one = lambda seed: make(  # noqa: E731
        Walk((3, 4, 6, 12)), {"seed": seed, "config": SMALL}
    )
    whole, first, second = make_one(0), make_one(0), make_one(7)
    torch.manual_seed(1)
    whole.learn(2)
    torch.manual_seed(1)
    first.learn(2)
    first.save(tmp_path / "model.pt")
    second.load(tmp_path / "model.pt")
    saved, loaded = first.alg.bonus.state_dict(), second.alg.bonus.state_dict()
    assert equal(saved, loaded)
    after = []
    for runner in (whole, second):
        torch.manual_seed(2)
        runner.learn(2)
        after.append(runner.alg.save())
    assert equal(*after) and int(second.alg.bonus.updates) == 4


def test_a_checkpoint_opens_new_episodes_and_loads_for_other_numbers_of_environments(tmp_path):
    runner = make(surprise={"config": SMALL})
    runner.learn(1)  # three of four episodes are in the middle
    runner.save(tmp_path / "model.pt")
    again = make(surprise={"config": SMALL})
    again.load(tmp_path / "model.pt")
    assert again.alg.bonus.steps.first.all() and not runner.alg.bonus.steps.first.all()
    play = make(Walk((3, 4)), {"config": SMALL})
    play.load(tmp_path / "model.pt")
    play.learn(1)
    for name, value in runner.alg.bonus.model.state_dict().items():
        if "target" in name:
            assert torch.equal(value, play.alg.bonus.model.state_dict()[name])
    assert int(play.alg.bonus.updates) == 2


def test_checkpoints_without_this_bonus_are_refused_and_change_nothing(tmp_path):
    plain = make(class_name="PPO")
    plain.save(tmp_path / "plain.pt")
    make(surprise={"method": "rnd", "config": SMALL}).save(tmp_path / "rnd.pt")
    runner = make(surprise={"config": SMALL})
    runner.learn(1)
    before = copy.deepcopy(runner.alg.save())
    with pytest.raises(UserError, match="holds no bonus"):
        runner.load(tmp_path / "plain.pt")
    with pytest.raises(UserError, match="holds the bonus 'rnd', this is"):
        runner.load(tmp_path / "rnd.pt")
    assert equal(before, runner.alg.save())
    runner.load(tmp_path / "plain.pt", load_cfg={"actor": True, "critic": True})
    state = plain.alg.actor.state_dict()
    assert all(torch.equal(value, state[k]) for k, value in runner.alg.actor.state_dict().items())


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="rnd_cfg would pay a second bonus"):
        SurprisePPO(None, None, None, rnd_cfg={"weight": 1})
    with pytest.raises(UserError, match=r"Unknown option of algorithm\['surprise'\] 'betta'"):
        make(surprise={"betta": 1})
    with pytest.raises(UserError, match=r"surprise\.beta"):
        make(surprise={"beta": float("nan")})
    with pytest.raises(UserError, match="Unknown option 'slotz'"):
        make(surprise={"config": {"memory": {"slotz": 3}}})
    with pytest.raises(UserError, match="vectors side by side or one image"):
        make(obs_groups={"actor": ["policy"], "critic": ["age"], "surprise": ["age", "camera"]})
    env = Walk()
    look = env.step

    def forgets(actions):
        *rest, extras = look(actions)
        if "final_obs" in extras:
            extras["final_obs"] = extras["final_obs"].select("age")
        return *rest, extras

    env.step = forgets
    with pytest.raises(UserError, match=r"has no group 'policy': it has \['age'\]"):
        make(env, {"config": SMALL}).learn(1)
