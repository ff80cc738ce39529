"""What fedgps-ray is compared with: federated rounds in plain PyTorch, without any of our code."""

from typing import Any, NamedTuple

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn

LR, MOMENTUM, DECAY, CLIP, RHO, TAU = 0.01, 0.9, 1e-5, 10.0, 0.5, 0.07


class Workload(NamedTuple):
    """Clients of equal size, some of which train for one local epoch in each round."""

    name: str
    model: str
    image_size: int
    clients: int
    samples: int  # of each client
    per_round: int
    batch_size: int
    fedgps: bool = False
    classes: int = 10
    surrogates: int = 128  # noise images per step


class Cnn(nn.Module):
    """Two 5x5 convolutions, a layer of 512 units, a linear head."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
        self.hidden, self.head = nn.Linear(64 * 8 * 8, 512), nn.Linear(512, outputs)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.relu(self.hidden(x.flatten(1)))


class Mlp(nn.Module):
    """Two hidden layers of 128 and 32 units, a linear head."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(192, 128), nn.Linear(128, 32)
        self.head = nn.Linear(32, outputs)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head."""
        return F.relu(self.second(F.relu(self.first(x.flatten(1)))))


class Data(NamedTuple):
    """Normalised images of all clients in a row, and noise images."""

    x: Tensor
    y: Tensor
    noise_x: Tensor
    noise_y: Tensor


def make_data(load: Workload) -> Data:
    """Draw random images in the memory order that the network uses."""
    draw = torch.Generator().manual_seed(0)
    size, side = load.clients * load.samples, load.image_size
    noise = 5000 if load.fedgps else 1

    def pictures(number: int) -> Tensor:
        drawn = torch.randn(number, 3, side, side, generator=draw)
        return drawn.contiguous(memory_format=torch.channels_last)

    def labels(number: int) -> Tensor:
        return torch.randint(load.classes, (number,), generator=draw)

    return Data(pictures(size), labels(size), pictures(noise), labels(noise))


def contrast(z: Tensor, labels: Tensor) -> Tensor:
    """Return the supervised contrastive loss."""
    z = F.normalize(z, dim=1)
    similar = z @ z.T / TAU
    self_pair = torch.eye(len(z), dtype=torch.bool)
    log_sum = similar.masked_fill(self_pair, -torch.inf).logsumexp(1, keepdim=True)
    same = (labels[:, None] == labels[None, :]) & ~self_pair
    picked = torch.where(same, similar - log_sum, torch.zeros(()))
    return -(picked.sum(1) / same.sum(1).clamp(min=1)).mean()


class Trainer:
    """Local training with a standard model, optimizer and loop."""

    def __init__(self, load: Workload, data: Data) -> None:
        self.load, self.data = load, data
        outputs = load.classes * (2 if load.fedgps else 1)
        self.model: Any = Cnn(outputs) if load.model == "cnn" else Mlp(outputs)
        self.tensors: list[Tensor] = list(self.model.parameters())
        self.sizes = [t.numel() for t in self.tensors]

    def initial(self) -> Tensor:
        """Return the model's values as one vector."""
        return torch.cat([t.detach().flatten() for t in self.tensors])

    def train(self, client: int, start: Tensor, ahead: Tensor | None) -> Tensor:
        """Train one client and return how far its weights moved."""
        with torch.no_grad():
            for tensor, part in zip(self.tensors, self._pieces(start), strict=True):
                tensor.copy_(part)
        optimizer = torch.optim.SGD(
            self.tensors, lr=LR, momentum=MOMENTUM, weight_decay=DECAY, foreach=True
        )
        shift = None if ahead is None else self._shift(ahead)
        order = torch.randperm(self.load.samples) + client * self.load.samples
        for chosen in order.split(self.load.batch_size):
            optimizer.zero_grad()
            if self.load.fedgps:
                self._joint_backward(chosen, shift)
                nn.utils.clip_grad_norm_(self.tensors, CLIP)
            else:
                logits = self.model.head(self.model.features(self.data.x[chosen]))
                F.cross_entropy(logits, self.data.y[chosen]).backward()
            optimizer.step()
        return self.initial().sub_(start)

    def _move(self, shift: list[Tensor], sign: int) -> None:
        for tensor, part in zip(self.tensors, shift, strict=True):
            tensor.add_(part, alpha=sign)

    def _pieces(self, vector: Tensor) -> list[Tensor]:
        parts = vector.split(self.sizes)
        return [part.view_as(t) for part, t in zip(parts, self.tensors, strict=True)]

    def _shift(self, ahead: Tensor) -> list[Tensor]:
        size = sum(float(piece.norm()) for piece in ahead.split(self.sizes))
        return self._pieces(ahead * (RHO / (size + 1e-7)))

    def _joint_backward(self, chosen: Tensor, shift: list[Tensor] | None) -> None:
        """Do one FedGPS step up to the gradient: real and noise images in one pass."""
        noise = torch.randint(len(self.data.noise_y), (self.load.surrogates,))
        if shift is not None:
            with torch.no_grad():
                self._move(shift, 1)
        y, noise_y, n = self.data.y[chosen], self.data.noise_y[noise], len(chosen)
        z = self.model.features(torch.cat([self.data.x[chosen], self.data.noise_x[noise]]))
        logits = self.model.head(z)
        loss = F.cross_entropy(logits[:n], y)
        loss = loss + F.cross_entropy(logits[n:], noise_y + self.load.classes)
        both = torch.cat([y, noise_y + self.load.classes])
        loss = loss + contrast(torch.cat([z[:n], z[n:].detach()]), both)
        loss = loss + 0.1 * contrast(z[n:], noise_y)
        loss.backward()
        if shift is not None:
            with torch.no_grad():
                self._move(shift, -1)


class Serial:
    """One process with a thread per core; clients train one after the other."""

    def __init__(self, load: Workload, data: Data, threads: int) -> None:
        self.load, self.threads = load, threads
        self.client = Trainer(load, data)
        self.weights = self.client.initial()
        self.update: Tensor | None = None
        self.draw = torch.Generator().manual_seed(1)

    def round(self) -> None:
        """Train the clients of a round and average their updates."""
        torch.set_num_threads(self.threads)
        picked = torch.randperm(self.load.clients, generator=self.draw)[: self.load.per_round]
        deltas = [self.client.train(int(k), self.weights, self.update) for k in picked]
        mean = torch.stack(deltas).mean(0)
        self.weights = self.weights + mean
        self.update = mean if self.load.fedgps else None


class Pool:
    """One single-threaded process per core; weights and updates are in shared memory."""

    def __init__(self, load: Workload, data: Data, processes: int) -> None:
        self.load = load
        first = Trainer(load, data).initial()
        self.weights, self.update = first.clone().share_memory_(), torch.zeros_like(first)
        self.update.share_memory_()
        self.deltas = torch.zeros(load.per_round, len(first)).share_memory_()
        self.draw = torch.Generator().manual_seed(1)
        context = mp.get_context("spawn")
        self.pipes, self.processes = [], []
        shared = Data(*(t.share_memory_() for t in data))
        for _ in range(processes):
            here, there = context.Pipe()
            arguments = (there, load, shared, self.weights, self.update, self.deltas)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)
        for pipe in self.pipes:
            pipe.recv()
        self.started = False

    def round(self) -> None:
        """Distribute the clients of a round and average their updates."""
        picked = torch.randperm(self.load.clients, generator=self.draw)[: self.load.per_round]
        slots = list(enumerate(picked.tolist()))
        for i, pipe in enumerate(self.pipes):
            pipe.send((slots[i :: len(self.pipes)], self.started and self.load.fedgps))
        for pipe in self.pipes:
            pipe.recv()
        mean = self.deltas.mean(0)
        self.weights += mean
        self.update.copy_(mean)
        self.started = True

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def _serve(
    pipe: Any, load: Workload, data: Data, weights: Tensor, update: Tensor, deltas: Tensor
) -> None:
    torch.set_num_threads(1)
    client = Trainer(load, data)
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        mine, ahead = order
        for slot, k in mine:
            deltas[slot].copy_(client.train(k, weights, update if ahead else None))
        pipe.send("done")
