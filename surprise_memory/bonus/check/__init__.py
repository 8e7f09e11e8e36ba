"""Does a part of yours keep its contract? These checks say which promise it breaks.

    from surprise_memory import check_surprise
    check_surprise(lambda shape, action_space, config: MySurprise(shape))

They raise `Broken` with the promise and the likely cause, and return nothing when all is well.
"""

from surprise_memory.bonus.check.memory import check_memory
from surprise_memory.bonus.check.promises import Broken
from surprise_memory.bonus.check.stage import check_stage
from surprise_memory.bonus.check.surprise import check_surprise

__all__ = ["Broken", "check_memory", "check_stage", "check_surprise"]
