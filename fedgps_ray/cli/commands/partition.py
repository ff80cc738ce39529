"""partition: which client holds which classes."""

from pathlib import Path

from fedgps_ray.analysis.figures import heatmap
from fedgps_ray.api.settings import suited_trial
from fedgps_ray.cli.app import out, pairs, show_json, writing
from fedgps_ray.cli.declared import Partition
from fedgps_ray.data import datasets, skew
from fedgps_ray.data.partition import class_counts, index_sha256, split
from fedgps_ray.spec import TrialSpec, columns


def partition(options: Partition) -> None:
    """Show and draw the partition of a data set, and measure its skew."""
    spec, files, _ = suited_trial(_settings(options), options.settings or [])
    source = datasets.Source(options.data_dir, options.download, files)
    data = datasets.load(spec.dataset, source)
    drawn = (data.y_train, spec.clients, spec.partition, spec.partition_seed)
    shared = split(*drawn, owners=data.client_train)
    counts = class_counts(shared.parts, data.y_train, data.num_classes)
    figures = skew.skew(counts)._asdict()
    sha256 = index_sha256(shared.parts)
    facts = {"sha256": sha256, "moved": shared.moved, "attempts": shared.attempts}
    png = options.png or _default_png(spec)
    title = f"{columns(spec)['dataset']}, {spec.clients} clients, scenario {spec.scenario}"
    writing(png, lambda: heatmap.save_png(counts, png, title))
    if options.as_json:
        show_json({**figures, **facts, "counts": counts.tolist(), "png": str(png)})
        return
    out.print(heatmap.table(counts, data.class_names))
    rows = {k.replace("_", " "): f"{v:.4g}" for k, v in figures.items()} | facts | {"figure": png}
    out.print(pairs({key: str(value) for key, value in rows.items()}))


def _settings(options: Partition) -> dict[str, object]:
    return {
        "dataset": options.dataset,
        "clients": options.clients,
        "partition": options.settings_of_partition,
        "scenario": options.scenario,
    }


def _default_png(spec: TrialSpec) -> Path:
    named = columns(spec)
    parts = (named["dataset"], named["partition"], spec.clients, spec.scenario)
    return Path(f"partition-{'-'.join(map(str, parts))}.png")
