"""How wrong was I? A surprise generator turns what it sees into residual vectors u; their size trains it."""

from surprise_memory.surprise.rnd import RND, RNDConfig

SURPRISES = {  # name -> (class, one line of help)
    "rnd": (RND, "random network distillation: predict a frozen random network's features of the state"),
}

__all__ = ["RND", "SURPRISES", "RNDConfig"]
