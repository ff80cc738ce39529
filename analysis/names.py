"""What is known of the published methods without importing them: names, and what each sends."""

from fedgps_ray.titles import TITLES

ONE_MODEL = ("M", "M")
OTHER_TRAFFIC = {
    "scaffold": ("2M", "2M"),
    "ccvr": ("M; and from every client C(d + d^2)", "M; and to every client M"),
    "vhl": ("M (head of 2C outputs)", "M (head of 2C outputs)"),
    "fedlesam": ("2M", "2M"),
    "fedgps": ("M + Cd", "2M + Cd"),
    "fedgps_cf": ("M + Cd", "M + Cd"),
}
# what a client sends and receives in a round; M is the size of the model
FORMULAS = {method: OTHER_TRAFFIC.get(method, ONE_MODEL) for method in TITLES}


def published_name(method: str) -> str:
    """Return a method's name in print; methods from elsewhere keep the name they have."""
    return TITLES.get(method, method)
