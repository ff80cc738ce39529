"""new: files to start from."""

from rich.markup import escape

from fedgps_ray.cli.app import out, writing
from fedgps_ray.cli.declared import NewMethod
from fedgps_ray.tools import skeleton


def method(options: NewMethod) -> None:
    """Write a method and its test, and say what to do with them."""
    paths = writing(options.folder, lambda: skeleton.write(options.name, options.folder))
    code, test = (escape(str(path)) for path in paths)
    name = skeleton.class_name(options.name)
    for line in (
        f"wrote {code} and {test}",
        f"run it:    fedgps-ray run --method {code}:{name} --rounds 5",
        f"check it:  fedgps-ray verify {code}:{name}",
        f"test it:   python -m pytest {test}",
    ):
        out.print(line, highlight=False, soft_wrap=True)
