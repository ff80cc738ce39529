"""BatchNorm without a batch counter, that can also train on a single value per channel."""

import torch.nn.functional as F
from torch import Tensor, nn

MOMENTUM = 0.1


class BatchNorm(nn.BatchNorm2d):
    """BatchNorm2d whose only state is the running mean and variance."""

    # The parent's loader would insist on the batch counter that this layer does not have.
    _load_from_state_dict = nn.Module._load_from_state_dict

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-5, momentum=MOMENTUM)
        self.num_batches_tracked = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the batch, or by the running statistics where a batch has no variance."""
        has_variance = x.numel() > x.shape[1]
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training and has_variance,
            momentum=MOMENTUM,
            eps=self.eps,
        )
