"""Code that is not part of the package: which code a reference means, and how to import it.

A reference is `my_file.py:Name`, `package.module:Name` or a name that an installed package
publishes as an entry point. `read` finds the code and imports none of it; `load` imports it, on
this machine or on another, from the text that `read` returned.
"""

from fedgps_ray.references.code import Bundle, Code, Found, Kind, digest
from fedgps_ray.references.failures import user_traceback
from fedgps_ray.references.importing import load
from fedgps_ray.references.installed import published
from fedgps_ray.references.objects import found_in, give_object
from fedgps_ray.references.own import is_noted, own_files
from fedgps_ray.references.reading import entry_file, is_reference, read
from fedgps_ray.references.registry import found_of, give, give_own, given, packages

__all__ = [
    "Bundle",
    "Code",
    "Found",
    "Kind",
    "digest",
    "entry_file",
    "found_in",
    "found_of",
    "give",
    "give_object",
    "give_own",
    "given",
    "is_noted",
    "is_reference",
    "load",
    "own_files",
    "packages",
    "published",
    "read",
    "user_traceback",
]
