import pytest

from fedgps_ray.errors import UserError, first_line, nearest, unknown

NAMES = ["fedavg", "fedgps", "fedgps_cf"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("fedavgg", "fedavg"),
        ("fdgps", "fedgps"),
        ("fedgps-cf", "fedgps_cf"),
        ("gps_cf", "fedgps_cf"),
    ],
)
def test_the_nearest_name_is_suggested(given, meant):
    assert nearest(given, NAMES) == f" Did you mean '{meant}'?"


@pytest.mark.parametrize(("given", "known"), [("scaffold", NAMES), ("", NAMES), ("fedavg", [])])
def test_nothing_is_suggested_where_nothing_is_near(given, known):
    assert nearest(given, known) == ""


def test_an_unknown_name_is_answered_with_the_known_ones():
    error = unknown("method", "fedgsp", NAMES)
    assert isinstance(error, UserError)
    assert str(error) == (
        "unknown method 'fedgsp'. Did you mean 'fedgps'? Known: fedavg, fedgps, fedgps_cf"
    )


def test_without_a_near_name_only_the_known_ones_are_given():
    assert str(unknown("method", "xyz", ("a", "b"))) == "unknown method 'xyz'. Known: a, b"


def test_known_names_may_come_from_an_iterator():
    words = str(unknown("method", "fedavgg", iter(NAMES)))
    assert words.endswith("Did you mean 'fedavg'? Known: fedavg, fedgps, fedgps_cf")


def test_a_user_error_is_a_value_error():  # pydantic turns those raised in a spec into messages
    assert issubclass(UserError, ValueError)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  one\ntwo"), "one"),
        (ValueError(), "ValueError()"),
        ("why\nmore", "why"),
    ],
)
def test_the_first_line_says_something(problem, told):
    assert first_line(problem) == told
