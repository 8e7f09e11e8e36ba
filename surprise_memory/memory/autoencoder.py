"""The autoencoder memory W: what can be recalled across episodes (section 2.3, appendix A)."""

from torch import Tensor, nn

from surprise_memory.errors import require_width
from surprise_memory.nn.nets import orthogonal


class Autoencoder(nn.Module):
    """W: q -> tanh(q W_1) W_2, a linear output; `bias=False` makes W(0) exactly zero."""

    def __init__(self, width: int, hidden: int, bias: bool = True) -> None:
        super().__init__()
        require_width("memory.w_hidden", hidden)
        self.encode = orthogonal(nn.Linear(width, hidden, bias))
        self.decode = orthogonal(nn.Linear(hidden, width, bias))

    def forward(self, q: Tensor) -> Tensor:
        """(..., width) to its reconstruction."""
        recalled: Tensor = self.decode(self.encode(q).tanh())
        return recalled
