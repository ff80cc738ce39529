"""A device that is not the CPU, without hardware: tensors that say `meta` and hold real numbers.

Within `pretend()` whatever is put on the meta device is computed on the CPU behind the scenes, an
operation that mixes both devices raises as on a GPU, and all traffic between them is counted.
"""

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
CPU = torch.device("cpu")
aten = torch.ops.aten
# the size of the result depends on the values, so the host has to wait for them
SIZED_BY_VALUES = {
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.bincount.default,
    aten.repeat_interleave.Tensor,
    aten.equal.default,
}
# operations for which CUDA has no deterministic kernel: PyTorch raises where one is demanded
NOT_DETERMINISTIC = {
    "_adaptive_avg_pool2d_backward",
    "adaptive_max_pool2d_backward",
    "avg_pool3d_backward",
    "bilinear_upsample",
    "cumsum",
    "fractional_max_pool2d_backward",
    "grid_sampler_2d_backward",
    "histc",
    "kthvalue",
    "max_unpool2d",
    "nll_loss2d_forward",
    "nll_loss2d_backward",
    "put_",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "replication_pad2d_backward",
    "upsample_bilinear2d_backward",
    "upsample_nearest2d_backward",
    "_embedding_bag_dense_backward",
    "index_reduce",
    "scatter_reduce",
}


@dataclass
class Traffic:
    """What went over between host and device, by operation."""

    reads: Counter = field(default_factory=Counter)  # the host waits for the device
    copies: Counter = field(default_factory=Counter)  # from the host to the device
    bytes_in: int = 0
    bytes_out: int = 0
    kernels: int = 0

    @property
    def num_reads(self):
        return self.reads.total()

    @property
    def num_copies(self):
        return self.copies.total()


TRAFFIC = [Traffic()]


class OnDevice(torch.Tensor):
    """A tensor on the pretended device."""

    @staticmethod
    def __new__(cls, held, requires_grad=False):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
            requires_grad=requires_grad,
        )
        made.held = held
        return made

    def __repr__(self):
        return f"OnDevice({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return dispatched(func, args, kwargs or {})

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, values):
        self.held = values.held

    def tolist(self):
        _read("tolist", self)
        return self.held.tolist()

    def data_ptr(self):
        return self.held.data_ptr()

    def new_tensor(self, values):
        return torch.tensor(values, dtype=self.dtype).to(DEVICE)

    def __deepcopy__(self, memo):
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        vars(copied).update({k: v for k, v in vars(self).items() if k != "held"})
        return copied


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return dispatched(func, args, kwargs or {})


@contextmanager
def pretend():
    """Compute what is on the meta device; yield the traffic."""
    TRAFFIC.append(Traffic())
    try:
        with _Mode():
            yield TRAFFIC[-1]
    finally:
        TRAFFIC.pop()


@contextmanager
def counted():
    """Yield the traffic of what happens inside alone."""
    TRAFFIC.append(Traffic())
    try:
        yield TRAFFIC[-1]
    finally:
        TRAFFIC.pop()


def dispatched(func, args, kwargs):
    """Carry out an operation on what the tensors hold."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    there = [t for t in tensors if isinstance(t, OnDevice)]
    wanted = kwargs.get("device")
    to = torch.device(wanted) if wanted is not None else None
    if not there and (to is None or to.type != "meta"):
        return func(*args, **kwargs)
    _check(func, tensors)
    target = to or DEVICE
    _count(func, args, tensors, target)
    if to is not None:
        kwargs = {**kwargs, "device": CPU}
    args_held, kwargs_held = tree_map(_held, (args, kwargs))
    result = func(*args_held, **kwargs_held)
    if func._schema.is_mutable and not kwargs.get("out"):
        return args[0] if func._schema.returns else None
    if target.type == "cpu":
        return result
    return tree_map(lambda r: OnDevice(r) if isinstance(r, torch.Tensor) else r, result)


def _held(value):
    return value.held if isinstance(value, OnDevice) else value


def _check(func, tensors):
    on_host = [t for t in tensors if not isinstance(t, OnDevice) and t.dim() > 0]
    if on_host and any(isinstance(t, OnDevice) for t in tensors) and func is not aten.copy_.default:
        raise RuntimeError(f"{func}: tensors on the CPU and on the device: {_shapes(tensors)}")
    name = func._schema.name.removeprefix("aten::")
    if name in NOT_DETERMINISTIC and any(t.is_floating_point() for t in tensors):
        raise RuntimeError(f"{name} has no deterministic kernel on CUDA")


def _shapes(tensors):
    return [(type(t).__name__, tuple(t.shape)) for t in tensors]


def _count(func, args, tensors, target):
    traffic = TRAFFIC[-1]
    traffic.kernels += 1
    source = tensors[0] if tensors else None
    if func is aten._local_scalar_dense.default or func in SIZED_BY_VALUES or _masked(func, args):
        _read(func, source)
    elif func is aten._to_copy.default and isinstance(source, OnDevice) != (target.type == "meta"):
        _sent(func, source)
    elif func is aten.copy_.default and len({isinstance(t, OnDevice) for t in tensors}) == 2:
        _sent(func, tensors[1])


def _masked(func, args):
    """Say whether values are chosen by a mask: how many is known to the device alone."""
    if func not in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
        return False
    return any(t is not None and t.dtype == torch.bool for t in args[1])


def _sent(func, source):
    if isinstance(source, OnDevice):
        _read(func, source)
    else:
        TRAFFIC[-1].copies[str(func)] += 1
        TRAFFIC[-1].bytes_in += source.nbytes


def _read(func, source):
    TRAFFIC[-1].reads[str(func)] += 1
    TRAFFIC[-1].bytes_out += source.nbytes
