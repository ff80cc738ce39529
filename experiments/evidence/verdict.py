"""The first paragraph of the page: the three answers, and the paper's orderings in short."""

from collections.abc import Mapping, Sequence

import pandas as pd

from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence import compare, study
from fedgps_ray.experiments.evidence.effects import Question, answers
from fedgps_ray.experiments.evidence.study import Study

QUESTIONS = (
    Question("aligned noise helps", study.NO_PATH, study.UNIFORM),
    Question("the path helps", study.MATCHED, study.NO_PATH),
    Question("FedGPS beats VHL", "FedGPS", "VHL"),
)
DRAWS = 6  # three partitions and two seeds decide each question
ASKED = {
    "aligned noise helps": "Does aligned noise help?",
    "the path helps": "Does the path help?",
    "FedGPS beats VHL": "Does FedGPS beat VHL?",
}
SAID = {"supported": "Yes", "refuted": "No, not by a point", "open": "Open"}
PLACE = (
    "On 10,000 CIFAR-10 images of 16x16 pixels, with a small network, ten clients and Dirichlet"
    " 0.1, mean accuracy of the last ten of 80 rounds, in points with 95 % intervals:"
)


def answered(known: Study) -> pd.DataFrame:
    """Return a row per question, from the draws there are."""
    return answers(known.of("depth"), QUESTIONS)


def is_decided(found: pd.DataFrame) -> bool:
    """Say whether every question has all of its draws: the rules are for those."""
    return bool((found["draws"] == DRAWS).all())


def first_paragraph(known: Study) -> str:
    """Return the answers to the three questions, or how far they are; and the orderings."""
    return f"{_answers(known)} {_orderings(known)}".strip()


def _answers(known: Study) -> str:
    try:
        found = answered(known)
    except UserError as problem:
        return f"**Not answered yet**: {problem}."
    rows = found.to_dict("records")
    if not is_decided(found):
        least = int(found["draws"].min())
        told = "; ".join(f"{row['claim']}: {_points(row)}" for row in rows)
        return f"**Not answered yet**: {least} of the {DRAWS} draws are finished. So far, {told}."
    return " ".join([PLACE, *(_sentence(row) for row in rows)])


def _sentence(row: Mapping[object, object]) -> str:
    asked, said = ASKED[str(row["claim"])], SAID[str(row["answer"])]
    p = compare.p_text(float(str(row["holm_p"])))
    return (
        f"**{asked} {said}**: {_points(row)} ({row['first']}, minus {row['second']};"
        f" corrected p {p})."
    )


def _points(row: Mapping[object, object]) -> str:
    return f"{row['mean']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"


def _orderings(known: Study) -> str:
    """Return how many of the paper's orderings are there, and which of them."""
    found = compare.orderings(known.of("depth"))
    if found.empty:
        return ""
    groups = {word: list(part["paper's order"]) for word, part in found.groupby("here it is")}
    parts = [_group(word, groups.get(word, [])) for word in ("reproduced", "reversed")]
    rest = len(groups.get("not told apart", []))
    return (
        f"**Orderings**: of the {len(found)} pairs that the paper's CIFAR-10 table orders,"
        f" {'; '.join(parts)}; {rest} not told apart."
    )


def _group(word: str, pairs: Sequence[str]) -> str:
    return f"{len(pairs)} {word}" + (f" ({', '.join(pairs)})" if pairs else "")
