"""VHL (Tang et al., 2022): clients also learn shared noise images and align features to them."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import STRICT, About
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.training.gradients import backprop, real_statistics
from fedgps_ray.training.local import Gradient, Local, NotNegative, Positive
from fedgps_ray.training.losses import supervised_contrast


@dataclass(frozen=True, config=STRICT)
class VHL(FedAvg):
    """FedAvg on real and noise images, real class c being pulled towards noise class c."""

    name: ClassVar[str] = "vhl"
    title: ClassVar[str] = "VHL"
    about: ClassVar[About] = About(
        client="joint step on real and noise images, features aligned class by class",
        server="mean of the models",
        state="the shared noise set",
        up="M (head of 2C outputs)",
        down="M (head of 2C outputs)",
        source="Tang et al., ICML 2022",
    )

    alpha: NotNegative = 1.0
    w_align: NotNegative = 1.0
    w_surrogate_supcon: NotNegative = 0.1
    temperature: Positive = 0.07
    align_epochs: int = Field(default=5, ge=0)  # later local epochs do not align
    bn_statistics: Literal["joint", "real"] = "joint"

    @property
    def needs_surrogate(self) -> bool:
        """Every step takes a batch of noise images."""
        return True

    def num_outputs(self, num_classes: int) -> int:
        """Real and noise classes have outputs of their own."""
        return 2 * num_classes

    def gradient(self, local: Local, message: Message, memory: None) -> Gradient:
        """Return the gradient of the joint loss."""
        joint = backprop(self.loss)
        return real_statistics(joint) if self.bn_statistics == "real" else joint

    def loss(self, local: Local, batch: Batch) -> Tensor:
        """Return real and noise cross-entropy, and the alignment in the first epochs."""
        noise, n = local.noise(), len(batch.y)
        z = local.network.features(torch.cat([batch.x, noise.x]))
        logits = local.network.head(z)
        real = F.cross_entropy(logits[:n], batch.y)
        virtual = F.cross_entropy(logits[n:], noise.y + local.num_classes)
        loss = real + self.alpha * virtual
        if batch.epoch < self.align_epochs:
            loss = loss + self.alignment(z[:n], z[n:], batch.y, noise.y)
        return loss

    def alignment(self, real: Tensor, virtual: Tensor, real_y: Tensor, virtual_y: Tensor) -> Tensor:
        """Contrast real with fixed noise features under matched labels, and noise with noise."""
        both, labels = torch.cat([real, virtual.detach()]), torch.cat([real_y, virtual_y])
        across = supervised_contrast(both, labels, self.temperature)
        within = supervised_contrast(virtual, virtual_y, self.temperature)
        return self.w_align * across + self.w_surrogate_supcon * within
