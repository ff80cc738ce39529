"""FedDecorr (Shi et al., 2023): correlation between feature dimensions is penalised locally."""

from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import STRICT, About
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.training.gradients import backprop
from fedgps_ray.training.local import Gradient, Local, NotNegative
from fedgps_ray.training.losses import decorrelation


@dataclass(frozen=True, config=STRICT)
class FedDecorr(FedAvg):
    """FedAvg with decorrelated features."""

    name: ClassVar[str] = "feddecorr"
    title: ClassVar[str] = "FedDecorr"
    about: ClassVar[About] = FedAvg.about._replace(
        client="SGD on cross-entropy and the correlation of the batch's features",
        source="Shi et al., ICLR 2023",
    )

    coefficient: NotNegative = 0.1
    # The coefficient belongs to the scaling of the authors' code, about a batch size larger.
    form: Literal["code", "paper"] = "code"

    def gradient(self, local: Local, message: Message, memory: None) -> Gradient:
        """Return the gradient of cross-entropy and penalty."""
        return backprop(self.loss)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        """Return cross-entropy plus the weighted penalty."""
        z = local.network.features(batch.x)
        loss = F.cross_entropy(local.network.head(z), batch.y)
        return loss + self.coefficient * decorrelation(z, self.form)
