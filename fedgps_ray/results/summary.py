"""The figures that sum up a trial."""

from collections.abc import Sequence

from fedgps_ray.identity import Settings, Table


def summary(rows: Sequence[Settings]) -> Table:
    """Return best, last and late mean accuracy, the costs, and the final hash."""
    done = [row for row in rows if row.get("weights_sha256") is not None]
    tested = [row for row in done if row["accuracy"] is not None]
    accuracies = [row["accuracy"] for row in tested]
    late = accuracies[-10:]
    best = max(accuracies, default=None)
    return {
        "rounds_done": len(done),
        "best_accuracy": best,
        "best_round": tested[accuracies.index(best)]["round"] if best is not None else None,
        "last_accuracy": accuracies[-1] if accuracies else None,
        "last_ten_accuracy": sum(late) / len(late) if late else None,
        "bytes_up": sum(row["bytes_up"] for row in done),
        "bytes_down": sum(row["bytes_down"] for row in done),
        "gradient_evaluations": sum(row["gradient_evaluations"] for row in done),
        "train_seconds": sum(row["train_seconds"] for row in done),
        "evaluate_seconds": sum(row["evaluate_seconds"] for row in done),
        "weights_sha256": done[-1]["weights_sha256"] if done else None,
    }
