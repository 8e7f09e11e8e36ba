"""What all pictures share: pyplot without a screen, and the colours."""

from typing import Any

from surprise_memory.errors import UserError

INK, NORM, NOVELTY, RETURN = "#333333", "#c46a1b", "#1b6fc4", "#2f8f5b"


def plotting() -> Any:
    """Pyplot without a screen, or how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError(
            "matplotlib is not installed: pip install 'surprise-memory[report]'."
        ) from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "font.size": 9,
            "axes.edgecolor": INK,
        }
    )
    return plt
