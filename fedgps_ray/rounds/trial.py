"""Runs one TrialSpec and writes its rows, from the first round or from the last checkpoint."""

import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import torch
from safetensors.torch import save_file

from fedgps_ray.data.partition import index_sha256
from fedgps_ray.errors import CannotWrite, Lost, Stopped, UserError, first_line
from fedgps_ray.events import Event, Row, Started
from fedgps_ray.methods.base import Method, State
from fedgps_ray.references import found_of
from fedgps_ray.results import code, files
from fedgps_ray.results.schema import DIVERGED, ENDED
from fedgps_ray.results.store import TrialStore
from fedgps_ray.results.summary import summary
from fedgps_ray.rounds import checkpoint
from fedgps_ray.rounds.loop import Diverged, Finished, Snapshot, run
from fedgps_ray.rounds.pool import InProcess, Pool
from fedgps_ray.rounds.setup import Ready, prepare
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, TrialSpec, method_name
from fedgps_ray.tensors import Params, num_bytes, views

# A checkpoint is written as soon as clients keep more than this many bytes that no checkpoint has
# yet: an eighth of the memory. What a checkpoint has need not stay in memory.
MOST_UNSAVED = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8

NO_MEMORY = "can't allocate memory"  # as PyTorch says
TOO_LARGE = "without overflow"
MISFITS = (TypeError, AttributeError, LookupError, ValueError, RuntimeError)


def run_trial(
    spec: TrialSpec, execution: ExecutionSpec, start_over: bool = False
) -> Generator[Event]:
    """Run a trial in this process; yield where it starts, then each row."""
    with claimed(spec, execution, start_over) as store:
        if (rounds_done := store.ended()) is not None:
            yield Started(rounds_done, [])
            return
        try:
            worker = Worker(prepare(spec, execution.source), spec.device)
            yield from run_with_pool(store, execution, worker, InProcess(worker))
        except torch.OutOfMemoryError as problem:
            raise UserError(_out_of_memory(spec, problem)) from None
        except (MemoryError, RuntimeError) as problem:
            if TOO_LARGE in str(problem):
                raise UserError(f"a setting is too large to be trained with ({problem})") from None
            if not _is_shortage(problem):
                raise
            reason = (str(problem) or "no memory left").splitlines()[0]
            raise UserError(
                f"out of memory: use smaller examples or a smaller model ({reason})"
            ) from None


def _is_shortage(problem: Exception) -> bool:
    """Say whether PyTorch or Python had no memory left."""
    return isinstance(problem, MemoryError | torch.OutOfMemoryError) or NO_MEMORY in str(problem)


def _out_of_memory(spec: TrialSpec, problem: Exception) -> str:
    return (
        f"out of GPU memory: a batch has {spec.batch_size} examples; use a smaller batch_size or"
        f" model, or precision bf16 ({first_line(problem)})"
    )


@contextmanager
def claimed(
    spec: TrialSpec,
    execution: ExecutionSpec,
    start_over: bool = False,
    patience: float = files.MOMENT,
) -> Iterator[TrialStore]:
    """Hold a trial's folder, which stays as it is until the trial runs with a pool.

    patience: how many seconds to wait for another process to let go of it.
    """
    store = TrialStore(execution.out, spec)
    store.make()
    with files.lock(store.folder, patience) as store.held:
        store.remove_drafts()
        store.starts_over = start_over
        yield store


def run_with_pool(
    store: TrialStore,
    execution: ExecutionSpec,
    ready: Ready,
    pool: Pool,
    is_loss: Callable[[Exception], bool] = lambda problem: False,
) -> Generator[Event]:
    """Run a trial that is made ready; yield where it starts, then each row.

    is_loss: says which exceptions are not the trial's fault, so that it can be continued.
    """
    trial = _Trial(store, execution, ready, pool)
    # not before: what cannot be made ready leaves no trial behind, and discards none
    store.open(execution)
    if store.starts_over:
        _empty(store)
    code.keep(store.folder, store.spec.code)
    yield from trial.run(lambda problem: isinstance(problem, (Stopped, Lost)) or is_loss(problem))


def _empty(store: TrialStore) -> None:
    """Remove what the trial has done; its trial.json says already that it is new."""
    shutil.rmtree(store.checkpoints, ignore_errors=True)
    for path in store.folder.glob("*.*"):
        if path.name not in (".lock", "trial.json"):
            path.unlink()


def _packages(method: Method) -> set[str]:
    """Return the packages in which a method and its parents are defined."""
    return {kind.__module__.partition(".")[0] for kind in type(method).__mro__[:-1]}


class _Trial:
    """A trial on its way: rows to the store, snapshots to the checkpoints."""

    def __init__(
        self, store: TrialStore, execution: ExecutionSpec, ready: Ready, pool: Pool
    ) -> None:
        self.store, self.execution = store, execution
        self.ready, self.pool = ready, pool
        self.method = ready.method
        self.saver = checkpoint.Saver(store.checkpoints, pool.fetch, pool.keeps_here)
        self.unsaved = 0  # bytes that clients keep in this process's memory alone
        self.saved = self.last = Snapshot(0, None, {})
        self.diverged: str | None = None  # how, if it has
        self.next_save = time.monotonic() + execution.checkpoint_seconds

    def run(self, is_interruption: Callable[[Exception], bool]) -> Iterator[Event]:
        """Go from the last checkpoint to the end; what interrupts a trial does not fail it."""
        start, problems = self._start()
        self.saved = self.last = start
        self._note_start()
        status = "interrupted"  # also where Ray ends this process
        try:
            yield Started(start.rounds_done, problems)
            yield from self._rounds(start)
            status = "finished"
        except Diverged as stop:
            self.store.add_last(stop.row)
            status, self.diverged = DIVERGED, str(stop)  # from here on the row is there
            yield stop.row
        except Exception as problem:  # of whatever kind: the folder has to say how the trial ended
            if is_interruption(problem):
                raise
            status, told = "failed", self._explained(problem, start)
            self.store.note(error=str(told) or repr(told))
            if told is problem:
                raise
            raise told from None
        finally:
            self._end(status)

    def _explained(self, problem: Exception, start: Snapshot) -> Exception:
        """Return the error to be told: no work may fit the values of a checkpoint."""
        is_told = isinstance(problem, UserError) or TOO_LARGE in str(problem)
        is_misfit = isinstance(problem, MISFITS) and not is_told and not _is_shortage(problem)
        if not is_misfit or start.rounds_done == 0:
            return problem
        return UserError(
            f"the trial was continued after round {start.rounds_done} and cannot go on"
            f" ({type(problem).__name__}: {problem}); if its checkpoint was changed, delete"
            f" {self.store.checkpoints}: it then starts from its first round"
        )

    def _start(self) -> tuple[Snapshot, list[str]]:
        first = Snapshot(0, self.method.init(self.ready.initial(), self.ready.cohort()), {})
        snapshot, problems = checkpoint.load(
            self.store.checkpoints,
            self.pool.store,
            _packages(self.store.spec.method),
            self._has_rows,
            self.ready.device,
            lambda state: self._has_model(state, first.state),
        )
        if snapshot is not None and type(snapshot.state) is type(first.state):
            return snapshot, problems
        if snapshot is not None:
            problems.append("the checkpoint holds the state of another method")
        if problems:
            problems.append("starting from the first round")
        self.store.resume_rows(0)
        return first, problems

    def _has_model(self, state: State, fresh: State) -> bool:
        """Say whether a state's models have kept their shape.

        Of a method from outside, only the size of the global model has to stay.
        """
        if found_of(type(self.store.spec.method)) is None:
            return checkpoint.has_same_models(state, fresh)
        own, first = (self.method.global_params(each) for each in (state, fresh))
        return [tensor.shape for tensor in own] == [tensor.shape for tensor in first]

    def _has_rows(self, rounds_done: int, rows: checkpoint.Rows | None) -> bool:
        """Say whether the rows of a checkpoint are on disk, and load them."""
        if rows is None:  # of an older version
            return self.store.resume_rows(rounds_done)
        own = rows.trial_id == self.store.spec.trial_id
        return own and self.store.resume_rows(rounds_done, rows.sha256)

    def _note_start(self) -> None:
        self.store.write_partition(self.ready.setup.counts)
        self.store.note(
            status="running",
            error=None,
            partition_sha256=index_sha256(self.ready.setup.parts),
            moved_samples=self.ready.setup.moved_samples,
            computed_on=self.pool.devices(),
        )

    def _rounds(self, start: Snapshot) -> Iterator[Row]:
        for finished in run(self.store.spec, self.ready.cohort(), self.pool, start):
            self._take(finished)
            yield finished.row

    def _take(self, finished: Finished) -> None:
        self.store.add(finished.row, finished.clients)
        self.last = finished.snapshot  # not before: its checkpoint needs all of its rows
        self.store.flush_in_time()
        if self.pool.keeps_here:
            kept = finished.snapshot.kept
            self.unsaved += sum(num_bytes(kept[client["client"]]) for client in finished.clients)
        if time.monotonic() >= self.next_save or self.unsaved > MOST_UNSAVED:
            self._save()

    def _save(self) -> None:
        """Write the rows first: a checkpoint never knows more rounds than there are rows."""
        self.store.flush()
        rows = checkpoint.Rows(self.store.spec.trial_id, self.store.rows_sha256)
        try:
            self.saver.save(self.last, rows)
        except TypeError as problem:  # a value that only a method can have made
            raise UserError(f"{method_name(self.store.spec.method)}: {problem}") from None
        self.saved, self.unsaved = self.last, 0
        self.next_save = time.monotonic() + self.execution.checkpoint_seconds

    def _end(self, status: str) -> None:
        facts: Row = {}
        try:
            self.store.flush()
            facts = {"summary": summary(self.store.rows)}  # of rows that are on disk
            if status in ENDED:
                self._write_model()
            elif self.last is not self.saved:
                self._save()
        except CannotWrite:
            status = "interrupted"
            raise
        except UserError:
            status = "failed"
            raise
        except BaseException:  # Ctrl-C too: what is not written whole has not ended
            status = "failed" if status == "failed" else "interrupted"
            raise
        finally:
            reason = self.diverged if status == DIVERGED else None
            self.store.note(status=status, diverged=reason, **facts)
        if status in ENDED:  # only now: killed before, the trial would start from the first round
            self.store.remove_checkpoints()

    def _write_model(self) -> None:
        """Leave the last global model, tensor by tensor under its name."""
        params: Params = self.method.global_params(self.last.state)
        layout = self.ready.network.layout
        tensors = views(params.weights, layout.weights) | views(params.buffers, layout.buffers)
        whole = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
        files.write(
            self.store.folder / "model.safetensors", lambda beside: save_file(whole, beside)
        )
