"""From an experiment file to its cells: every combination of settings, checked and in order."""

import dataclasses
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedgps_ray.errors import UserError, unknown
from fedgps_ray.experiment.document import Document, checked, read
from fedgps_ray.experiment.files import resolve
from fedgps_ray.experiment.search import Search
from fedgps_ray.experiment.tables import (
    Table,
    alternatives,
    flat,
    merged,
    number_of_alternatives,
)
from fedgps_ray.identity import Label, Settings
from fedgps_ray.methods import METHODS
from fedgps_ray.spec import TrialSpec

MOST_CELLS = 20_000


class GridCell(NamedTuple):
    """One trial of an experiment, and its label."""

    spec: TrialSpec
    label: Label

    @property
    def trial_id(self) -> str:
        """Return the name of the trial's folder."""
        return self.spec.trial_id


class Experiment(NamedTuple):
    """All trials of a study, in the order in which they should run."""

    name: str
    title: str
    description: str
    cells: tuple[GridCell, ...]
    files: dict[str, str]  # content hash -> path of the .npz files that the specs name
    execution: dict[str, Any]  # actors, client_cpus, client_gpus, checkpoint_seconds, hang_seconds
    search: Search | None


class Draft(NamedTuple):
    """A cell before it has a label: the number of its case, its settings in the file, its spec."""

    case: int
    values: Table
    spec: TrialSpec


def load(
    path: Path, settings: Sequence[str] | Settings = (), data_dir: Path | None = None
) -> Experiment:
    """Return the experiment of a file; settings win over what it says: KEY=VALUE, or a mapping.

    Relative paths of .npz files start from the file's folder; what is not there is looked for in
    data_dir.
    """
    folders = [path.parent] if data_dir is None else [path.parent, data_dir]
    try:
        return _experiment(read(path, settings), folders)
    except UserError as problem:
        told = str(problem)
        raise UserError(told if str(path) in told else f"{path}: {told}") from None


def from_tables(content: Settings, settings: Settings) -> Experiment:
    """Return the experiment of tables as a file has them; settings win over what they say.

    Relative paths of .npz files start from the current folder.
    """
    return _experiment(checked(dict(content), Path("sweep"), settings), [Path()])


def _experiment(document: Document, folders: Sequence[Path]) -> Experiment:
    document = _within_search(document)
    drafts, files = _drafts(document, folders)
    cells = tuple(GridCell(draft.spec, label) for draft, label in _labelled(_ordered(drafts)))
    return Experiment(
        name=document.name,
        title=document.title,
        description=document.description,
        cells=cells,
        files=files,
        execution=document.execution,
        search=document.search,
    )


def _within_search(document: Document) -> Document:
    """Leave out of the search what --set fixes; refuse keys that are searched and listed."""
    if document.search is None:
        return document
    for key in document.search.ranges:
        if any(key in axes for axes in (document.grid, *document.cases)):
            raise UserError(f"{key} is in [search.ranges] and in [grid] or [[cases]]: remove one")
    ranges = _without(document.search.ranges, document.overrides)
    if not ranges:
        raise UserError("--set leaves nothing to search: all of [search.ranges] is fixed")
    return document._replace(search=document.search._replace(ranges=ranges))


def _without(table: Settings, overrides: Settings) -> Table:
    """Drop the keys that are overridden, and those below them."""
    return {
        key: value
        for key, value in table.items()
        if not any(key == over or key.startswith(f"{over}.") for over in overrides)
    }


def _drafts(document: Document, folders: Sequence[Path]) -> tuple[list[Draft], dict[str, str]]:
    drafts: dict[str, Draft] = {}
    files: dict[str, str] = {}
    may_repeat = bool(document.overrides) or document.search is not None
    for case, chosen in _combinations(document):
        where = f"case {case + 1}: " if len(document.cases) > 1 else ""
        try:
            spec, own = resolve(_values(document, chosen), *folders)
        except UserError as problem:
            raise UserError(f"{where}{problem}") from None
        draft = Draft(case, merged({"method": "fedgps"}, document.base, chosen), spec)
        same = drafts.setdefault(spec.trial_id, draft)
        if same is not draft and same.case == case and not may_repeat:
            raise UserError(f"{where}the same trial twice: {_text(chosen)}; remove one")
        files |= own
    return list(drafts.values()), files


def _combinations(document: Document) -> Iterator[tuple[int, Table]]:
    """Yield the number of the case and the chosen settings of each cell."""
    own = {key: _choices(key, value) for key, value in document.overrides.items()}
    drawn = document.search.draws() if document.search else [{}]
    axes = [
        {
            key: _choices(key, value)
            for key, value in _without({**document.grid, **case}, own).items()
        }
        | own
        for case in document.cases
    ]
    empty = [key for each in axes for key, values in each.items() if not values]
    if empty:
        raise UserError(f"{empty[0]} = []: the list is empty, so there would be no cell")
    _check_number(sum(math.prod(map(len, each.values())) for each in axes) * len(drawn))
    for case, each in enumerate(axes):
        for chosen in itertools.product(*each.values()):
            for sample in drawn:
                yield case, {**dict(zip(each, chosen, strict=True)), **sample}


def _choices(key: str, value: object) -> list[object]:
    """Return the values that a key takes in turn; the method "all" stands for every method."""
    _check_number(number_of_alternatives(value))
    values = alternatives(value)
    if key != "method":
        return values
    return [name for each in values for name in (METHODS if each == "all" else [each])]


def _check_number(cells: int) -> None:
    if cells > MOST_CELLS:
        number = f"{cells:,}" if cells < 10**18 else "more than 10^18"
        raise UserError(f"there would be {number} cells, at most {MOST_CELLS:,} are possible")


def _values(document: Document, chosen: Table) -> Table:
    """Return all settings of a cell: base, what was chosen, the method's own, --set."""
    values = merged({"method": "fedgps"}, document.base, chosen)
    name = str(_options(values).get("name"))
    of_spec: Table = {}
    of_method: Table = {}
    for key, value in document.methods.get(name, {}).items():
        if key in document.grid:
            raise UserError(f"methods.{name}.{key} is also in [grid]: remove one of them")
        part = of_spec if _belongs_to_spec(name, key) else of_method
        part[key.removeprefix("method.")] = value
    values = merged(values, of_spec, {key: chosen[key] for key in document.overrides})
    return values | {"method": {**of_method, **_options(values)}}


def _options(values: Table) -> Table:
    method = values["method"]
    return dict(method) if isinstance(method, Mapping) else {"name": method}


def _belongs_to_spec(name: str, key: str) -> bool:
    """Say whether a key of [methods.NAME] is a setting of the trial, not one of the method."""
    fields = [field for field in TrialSpec.model_fields if field != "method"]
    if name not in METHODS:  # its options are checked when it is made
        return key.split(".")[0] in fields
    options = ["preset", *(field.name for field in dataclasses.fields(METHODS[name]))]
    first = key.split(".")[0]
    if first not in (*fields, "method") and key not in options:
        raise unknown(f"key of [methods.{name}]", key, [*options, *fields])
    return first in fields


def _ordered(drafts: Sequence[Draft]) -> list[Draft]:
    """Sort by seed, scenario and setting; methods vary fastest, so that tables fill early."""
    settings = _ranks(map(_setting, drafts))
    methods = _ranks(map(_method, drafts))
    return sorted(
        drafts,
        key=lambda draft: (
            draft.spec.seed,
            draft.spec.scenario,
            settings[_setting(draft)],
            methods[_method(draft)],
        ),
    )


def _ranks(keys: Iterable[str]) -> dict[str, int]:
    return {key: rank for rank, key in enumerate(dict.fromkeys(keys))}


def _setting(draft: Draft) -> str:
    """Return a key that cells have in common if only method, scenario or seed differ."""
    own = ("seed", "scenario", "method")
    return _text({key: value for key, value in draft.values.items() if key not in own})


def _method(draft: Draft) -> str:
    """Return the method with the options it was given."""
    options = _options(draft.values)
    return " ".join([options.pop("name"), *(f"{k}={_text(v)}" for k, v in options.items())])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _labelled(drafts: Sequence[Draft]) -> Iterator[tuple[Draft, Label]]:
    """Yield each cell with its method and the settings in which cells differ."""
    told = [flat(draft.values, stop=lambda *_: False) for draft in drafts]
    keys = [key for key in dict.fromkeys(itertools.chain(*told)) if key.split(".")[0] != "method"]
    differing = [key for key in keys if len({_text(table.get(key)) for table in told}) > 1]
    names = _short_names(differing)
    for draft, table in zip(drafts, told, strict=True):
        own = {names[key]: _text(table[key]) for key in differing if key in table}
        yield draft, Label(_method(draft), own)


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return partition for partition.kind, alpha for partition.alpha; whole where two are alike."""
    paths = {key: key.removesuffix(".name").removesuffix(".kind") for key in keys}
    alike = Counter(path.rpartition(".")[2] for path in set(paths.values()))
    short = {path: path.rpartition(".")[2] for path in paths.values()}
    return {key: short[path] if alike[short[path]] == 1 else path for key, path in paths.items()}
