"""Other kinds of noise: TVs with channels or replayed frames, a sticky remote, a noisy view."""

import fakes  # noqa: F401 (registers Picture-v0 and Counter-v0)
import numpy as np
import pytest

from surprise_memory.envs import TOY, family_of, make_vec
from surprise_memory.errors import UserError

STEPS = 60


def frames(env_id, action_of, num_envs=4):
    """(watched (T, B), next_obs (T, B, ...), obs after) under some actions."""
    env = make_vec(env_id, num_envs, seed=3)
    env.reset()
    watched, shown, valid = [], [], []
    for t in range(STEPS):
        step = env.step(action_of(env, t))
        watched.append(env.watched.copy() if hasattr(env, "watched") else None)
        shown.append(step.next_obs)
        valid.append(step.valid & ~(step.terminated | step.truncated))
    return np.array(watched), np.array(shown), np.array(valid)


def always_on(env, t):
    return np.full(env.num_envs, env.tv_action)


@pytest.mark.parametrize("env_id", [TOY, "Picture-v0"])
def test_channels_are_a_few_fixed_images(env_id):
    watched, shown, _ = frames(f"NoisyTV:channels=3/{env_id}", always_on)
    seen = {x.tobytes() for x in shown[watched]}
    assert watched.sum() > 50 and len(seen) == 3
    fresh_watched, fresh, _ = frames(f"NoisyTV/{env_id}", always_on)
    assert len({x.tobytes() for x in fresh[fresh_watched]}) == fresh_watched.sum()


def test_a_tv_that_replays_shows_only_what_was_really_seen():
    def sometimes(env, t):
        return np.where(np.arange(env.num_envs) % 2 == t % 2, env.tv_action, 0)

    watched, shown, _ = frames(f"NoisyTV:replay=20/{TOY}", sometimes)
    real = {x.tobytes() for x in shown[~watched]}
    late = np.arange(STEPS)[:, None] >= 1
    on_tv = [x.tobytes() for x in shown[watched & late]]
    assert len(on_tv) > 50 and set(on_tv) <= real and len(set(on_tv)) > 1


def test_a_sticky_remote_stays_on_for_so_many_steps_and_ends_with_the_episode():
    def once(env, t):
        return np.full(env.num_envs, env.tv_action if t == 5 else 0)

    watched, _, _ = frames(f"NoisyTV:sticky=4/{TOY}", once)
    assert watched[:, 0].nonzero()[0].tolist() == [5, 6, 7, 8]
    env = make_vec("NoisyTV:sticky=50/Counter-v0", 2, seed=0)
    env.reset()
    for _ in range(20):
        step = env.step(np.full(2, env.tv_action))
        done = step.terminated | step.truncated
        assert not (env.left[done]).any()


def test_a_noisy_view_is_noise_in_its_part_alone_and_in_every_step():
    env = make_vec(f"NoisyView:share=0.5/{TOY}", 3, seed=0)
    plain = make_vec(TOY, 3, seed=0)
    noisy, real = env.reset(), plain.reset()
    half = round(0.5 * real.shape[1])
    for t in range(40):
        assert np.array_equal(noisy[:, :-half], real[:, :-half])
        assert (noisy[:, -half:] != real[:, -half:]).all()
        action = np.full(3, t % 2)
        a, b = env.step(action), plain.step(action)
        assert np.array_equal(a.next_obs[:, :-half], b.next_obs[:, :-half])
        assert (a.next_obs[:, -half:] != b.next_obs[:, -half:]).all()
        noisy, real = a.obs, b.obs
    assert env.tv_action is None


def test_a_noisy_view_of_images_spoils_their_left_columns():
    env, plain = make_vec("NoisyView:share=0.25/Picture-v0", 2, 0), make_vec("Picture-v0", 2, 0)
    noisy, real = env.reset(), plain.reset()
    width = real.shape[-1] // 4
    assert noisy.dtype == np.uint8 and np.array_equal(noisy[..., width:], real[..., width:])
    assert (noisy[..., :width] != real[..., :width]).mean() > 0.9


def test_bad_options_are_one_sentence():
    for env_id, word in {
        f"NoisyTV:chanels=3/{TOY}": "channels",
        f"NoisyTV:channels=many/{TOY}": "many",
        f"NoisyTV:sticky=0/{TOY}": "sticky",
        f"NoisyTV:channels=2,replay=2/{TOY}": "one of them",
        f"NoisyView:share=1.5/{TOY}": "share",
    }.items():
        with pytest.raises(UserError, match=word):
            make_vec(env_id, 2, 0)
    assert family_of(f"NoisyTV:channels=3/NoisyView/{TOY}") == "toy"
    assert make_vec(f"NoisyTV:channels=3/NoisyView/{TOY}", 2, 0).reset().shape[0] == 2
