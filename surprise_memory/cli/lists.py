"""The commands that list what there is: envs, methods."""

import tyro


def envs_command(filter: tyro.conf.Positional[str] = "") -> None:
    """List the environments on this machine, or those whose id contains FILTER.

    Args:
        filter: Part of an id; upper and lower case are the same.
    """
    from surprise_memory.envs import list_envs

    for name in list_envs():
        if filter.lower() in name.lower():
            print(name)


def methods_command() -> None:
    """List the methods, and the stages that can be added to them."""
    from surprise_memory.bonus.methods import methods
    from surprise_memory.stages import STAGES

    for name, about in methods().items():
        print(f"{name:13} {about}")
    print("\nStages, to be added to any method but none, such as rnd+sm+expect:")
    for name, stage in STAGES.items():
        print(f"+{name:12} {stage.about}")
