"""What every model is: a feature extractor and a linear head."""

from torch import Tensor, nn


class Model(nn.Module):
    """A body that turns images into features, and a linear head on top of them."""

    # The head stays the last module: it is drawn last, so its size moves no other first value.
    def __init__(self, body: nn.Module, feature_dim: int, num_outputs: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.body = body
        self.head = nn.Linear(feature_dim, num_outputs)

    def features(self, x: Tensor) -> Tensor:
        """Return one feature vector per image, not normalised."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return one row of logits per image."""
        logits: Tensor = self.head(self.features(x))
        return logits
