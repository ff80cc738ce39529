"""What results look like on disk: version of the layout, statuses, and columns with their units."""

from typing import Final

import pyarrow as pa

LAYOUT_VERSION: Final = 2  # "schema_version" in trial.json; a new column needs no new version

NEW, RUNNING, INTERRUPTED, FAILED = "new", "running", "interrupted", "failed"
FINISHED, DIVERGED = "finished", "diverged"
STOPPED = "stopped"  # by the scheduler of a search, before its last round
MISSING = "missing"  # planned, without a folder
ENDED = (FINISHED, DIVERGED)
DONE = (*ENDED, STOPPED)  # nothing left to do
STATUSES = (NEW, RUNNING, INTERRUPTED, FAILED, *DONE)  # that a trial.json may have

TEXT = pa.dictionary(pa.int32(), pa.string())

SPEC = [
    ("trial_id", TEXT),
    ("dataset", TEXT),
    ("model", TEXT),
    ("method", TEXT),
    ("method_options", TEXT),  # JSON of the hyperparameters that are not neutral
    ("partition", TEXT),
    ("alpha", pa.float64()),
    ("classes_per_client", pa.int64()),
    ("scenario", pa.int64()),
    ("seed", pa.int64()),
    ("clients", pa.int64()),
    ("sampling_rate", pa.float64()),
    ("rounds", pa.int64()),  # planned, not done
    ("local_epochs", pa.int64()),
    ("batch_size", pa.int64()),
    ("lr", pa.float64()),
    ("weighting", TEXT),
    ("client_momentum", TEXT),
]

ROUNDS = pa.schema(
    [
        *SPEC,
        ("round", pa.int64()),  # from 1
        ("accuracy", pa.float64()),  # of the test set, 0 to 1; empty where the trial diverged
        ("loss", pa.float64()),  # of the test set
        ("class_accuracy", pa.list_(pa.float64())),  # empty entry: no test example of the class
        ("worst_client_accuracy", pa.float64()),  # test set re-weighted by a client's classes
        ("p10_client_accuracy", pa.float64()),
        ("median_client_accuracy", pa.float64()),
        ("train_loss", pa.float64()),  # mean over the clients of the round, weighted by samples
        ("weights_sha256", pa.string()),  # of the aggregated weights
        ("bytes_up", pa.int64()),
        ("bytes_down", pa.int64()),
        ("steps", pa.int64()),
        ("gradient_evaluations", pa.int64()),  # backward passes
        ("divergence", pa.float64()),
        ("update_diversity", pa.float64()),  # mean squared norm over squared norm of the mean
        ("metrics", pa.map_(pa.string(), pa.float64())),  # what only some methods report
        ("train_seconds", pa.float64()),
        ("aggregate_seconds", pa.float64()),
        ("evaluate_seconds", pa.float64()),
    ]
)

CLIENTS = pa.schema(
    [
        *SPEC,
        ("round", pa.int64()),
        ("client", pa.int64()),
        ("samples", pa.int64()),
        ("steps", pa.int64()),
        ("gradient_evaluations", pa.int64()),
        ("loss", pa.float64()),
        ("update_norm", pa.float64()),  # of the change of the weights
        ("bytes_up", pa.int64()),
        ("bytes_down", pa.int64()),
        ("worker", TEXT),
        ("work_seconds", pa.float64()),
    ]
)

PARTITION = pa.schema([*SPEC, ("client", pa.int64()), ("class", pa.int64()), ("count", pa.int64())])
