"""soak: whether memory or open files grow over many rounds."""

from rich.table import Table

from fedgps_ray.cli.app import err, out, show_json
from fedgps_ray.cli.declared import Soak
from fedgps_ray.tools import soak as tool


def soak(options: Soak) -> None:
    """Run many tiny rounds on Ray and show what grew."""
    with err.status("starting Ray") as status:
        growths = tool.soak(options.rounds, options.method, status.update)
    if options.as_json:
        show_json([growth._asdict() for growth in growths])
        return
    table = Table("process", "MB warm", "MB at the end", "ratio", "files warm", "files at the end")
    for growth in growths:
        table.add_row(
            growth.name,
            f"{growth.megabytes_before:.1f}",
            f"{growth.megabytes_after:.1f}",
            f"{growth.ratio:.3f}",
            str(growth.files_before),
            str(growth.files_after),
        )
    out.print(table)
