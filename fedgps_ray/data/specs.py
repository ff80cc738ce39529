"""What a user may say about a data set, checked when it is said."""

from collections.abc import Mapping
from dataclasses import field as dataclass_field
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)
from pydantic.dataclasses import dataclass

from fedgps_ray.data.arrays import Layout, Treatment
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.identity import Settings, Table
from fedgps_ray.references import Code, give_object

DATASETS: dict[str, str] = {
    "digits": "1,797 grey 8x8 images of handwritten digits, embedded; 10 classes",
    "synthetic": "generated images of any size and number of classes; nothing to download",
    "cifar10": "60,000 colour 32x32 images, 10 classes; downloaded or from a folder",
    "cifar100": "60,000 colour 32x32 images, 100 classes; downloaded or from a folder",
    "svhn": "99,289 colour 32x32 images of house numbers, 10 classes; downloaded or from a folder",
    "mnist": "70,000 grey 28x28 images of digits, 10 classes; downloaded or from a folder",
    "fashion_mnist": "70,000 grey 28x28 images of clothes, 10 classes; downloaded or from a folder",
    "kmnist": "70,000 grey 28x28 Japanese letters, 10 classes; downloaded or from a folder",
    "qmnist": "MNIST with a test set of 60,000 images; downloaded or from a folder",
    "emnist": "grey 28x28 images of letters and digits; option split; downloaded or from a folder",
    "usps": "9,298 grey 16x16 images of digits, 10 classes; downloaded or from a folder",
    "stl10": "13,000 colour 96x96 images, 10 classes; downloaded or from a folder",
    "npz": "your own arrays: the path of a .npz file with x_train, y_train, x_test, y_test",
    "arrays": "your own arrays: the path of a folder with x_train.npy, y_train.npy and so on",
    "image_folder": "your own images: the path of a folder with train/<class>/ and test/<class>/",
    "hugging_face": "the path of a folder that save_to_disk of Hugging Face's datasets wrote",
    "leaf": "the path of a folder with train/*.json and test/*.json as LEAF writes them",
}

TORCHVISION = {  # names that are those of a class of torchvision.datasets, and that class
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "svhn": "SVHN",
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
    "kmnist": "KMNIST",
    "qmnist": "QMNIST",
    "emnist": "EMNIST",
    "usps": "USPS",
    "stl10": "STL10",
}

STRICT = ConfigDict(extra="forbid")
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Extent = Annotated[str, Field(pattern="^[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}){0,7}$")]
Side = Annotated[int, Field(ge=1, le=4096)]


@dataclass(frozen=True, config=STRICT)
class Named:
    """A data set that a name says everything about."""

    name: Literal[
        "digits",
        "cifar10",
        "cifar100",
        "svhn",
        "mnist",
        "fashion_mnist",
        "kmnist",
        "qmnist",
        "usps",
        "stl10",
    ]


@dataclass(frozen=True, config=STRICT)
class Emnist:
    """EMNIST, which comes in several parts."""

    name: Literal["emnist"] = "emnist"
    split: Literal["balanced", "byclass", "bymerge", "letters", "digits", "mnist"] = "balanced"


@dataclass(frozen=True, config=STRICT)
class Synthetic:
    """Generated images: every class is a mixture of smooth patterns, blurred by noise."""

    name: Literal["synthetic"] = "synthetic"
    num_classes: Annotated[int, Field(ge=2, le=1000)] = 10
    image_size: Annotated[int, Field(ge=4, le=256)] = 16
    channels: Annotated[int, Field(ge=1, le=16)] = 3
    train_size: Annotated[int, Field(ge=1)] = 2000
    test_size: Annotated[int, Field(ge=1)] = 500
    noise: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.train_size < self.num_classes:
            raise ValueError(
                f"train_size {self.train_size} is below num_classes {self.num_classes}"
            )


@dataclass(frozen=True, config=STRICT)
class _Own:
    """A user's file or folder, known by its content and not by its path."""

    file: str
    sha256: Sha256
    standardise: bool = True

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> Table:
        """Leave out options that are not used, so that a new option changes no trial's id."""
        defaults = {field.name: field.default for field in fields(self)}
        return {
            key: value
            for key, value in dump(self).items()
            if key == "name" or value != defaults[key]
        }


@dataclass(frozen=True, config=STRICT)
class _OwnArrays(_Own):
    """Arrays that may need options that say how to read them."""

    layout: Layout | None = None
    shape: Extent | None = None

    @property
    def treatment(self) -> Treatment:
        """How the arrays become network input."""
        return Treatment(self.layout, self.shape, self.standardise)


@dataclass(frozen=True, config=STRICT)
class Npz(_OwnArrays):
    """An .npz file."""

    name: Literal["npz"] = "npz"


@dataclass(frozen=True, config=STRICT)
class Arrays(_OwnArrays):
    """A folder of .npy files."""

    name: Literal["arrays"] = "arrays"


@dataclass(frozen=True, config=STRICT)
class Leaf(_OwnArrays):
    """A folder of JSON files in LEAF's format."""

    name: Literal["leaf"] = "leaf"


@dataclass(frozen=True, config=STRICT)
class ImageFolder(_Own):
    """A folder of images, one folder for each class."""

    name: Literal["image_folder"] = "image_folder"
    size: Side | None = None  # pixels on each side to which images are scaled
    test: str = "test"  # the folder of the test images

    @property
    def treatment(self) -> Treatment:
        """How the images become network input."""
        return Treatment("hwc", None, self.standardise)


@dataclass(frozen=True, config=STRICT)
class HuggingFace(_OwnArrays):
    """A folder of Arrow files that `save_to_disk` wrote; columns are recognised or given."""

    name: Literal["hugging_face"] = "hugging_face"
    x: str | None = None
    y: str | None = None
    client: str | None = None
    size: Side | None = None
    test: str = "test"


@dataclass(frozen=True, config=STRICT)
class Function:
    """A function from outside the package that returns arrays, and what it is called with."""

    name: str
    code: dict[str, str]
    options: dict[str, Any] = dataclass_field(default_factory=dict)
    standardise: bool = True
    layout: Layout | None = None
    shape: Extent | None = None

    def __hash__(self) -> int:
        return hash((self.name, self.code["sha256"], repr(sorted(self.options.items()))))

    @property
    def reference(self) -> Code:
        """Which code it is."""
        return Code.from_table(self.name, self.code)

    @property
    def treatment(self) -> Treatment:
        """How the arrays become network input."""
        return Treatment(self.layout, self.shape, self.standardise)

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> Table:
        """Leave out what is not used."""
        unused: dict[str, Any] = {"options": {}, "standardise": True, "layout": None, "shape": None}
        return {k: v for k, v in dump(self).items() if k not in unused or v != unused[k]}


OwnData = Npz | Arrays | Leaf | ImageFolder | HuggingFace
DatasetSpec = Named | Emnist | Synthetic | OwnData | Function
KINDS: Table = {
    "synthetic": Synthetic,
    "emnist": Emnist,
    "npz": Npz,
    "arrays": Arrays,
    "leaf": Leaf,
    "image_folder": ImageFolder,
    "hugging_face": HuggingFace,
}
OWN = [name for name, kind in KINDS.items() if kind in get_args(OwnData)]


def parse(value: str | Settings | DatasetSpec) -> DatasetSpec:
    """Return the spec for a name, or for a table with a name and settings."""
    if isinstance(value, get_args(DatasetSpec)):
        spec: DatasetSpec = value
        return spec
    given = _table(_described(value))
    name = given["name"]
    kind = Function if "code" in given else KINDS.get(name, Named)
    known = [field.name for field in fields(kind)]
    for key in given:
        if key not in known:
            raise unknown(f"{name} setting", key, known)
    try:
        spec = kind(**given)
    except ValidationError as error:
        raise UserError(f"data set '{name}': {_reasons(error)}") from None
    return spec


def _described(value: object) -> Any:
    """Return a function of Python as a table, anything else as it is."""
    if isinstance(value, str | Mapping) or not callable(value):
        return value
    code = give_object(value, "dataset")
    return {"name": code.name, "code": code.table}


def _function_table(table: Settings) -> Table:
    """Put what is for the function itself apart from what is for its arrays."""
    known = [field.name for field in fields(Function)]
    own = {key: value for key, value in table.items() if key not in known}
    kept = {key: value for key, value in table.items() if key in known}
    return {**kept, "options": {**table.get("options", {}), **own}}


def _table(value: object) -> Table:
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise UserError(f"a data set is a name, or a table with a name and settings; got {value!r}")
    if "code" in table:
        return _function_table(table)
    table = {**table, "name": _short_name(table["name"])}
    if table["name"] not in DATASETS:
        raise unknown("data set", table["name"], DATASETS)
    if value in OWN:
        raise UserError(f"data set '{table['name']}' is given by its path, such as {EXAMPLE}")
    return table


EXAMPLE = "my_data.npz or my_folder/"


def _short_name(name: str) -> str:
    """Return our name for a class of torchvision.datasets, any other name as it is."""
    package, _, title = name.partition(":")
    if package != "torchvision.datasets":
        return name
    short = {title: short for short, title in TORCHVISION.items()}
    if title not in short:
        raise unknown("class of torchvision.datasets that can be read", title, short)
    return short[title]


def _reasons(error: ValidationError) -> str:
    return "; ".join(_reason(item) for item in error.errors())


def _reason(item: Settings) -> str:
    place = " ".join(str(part) for part in item["loc"])
    reason = str(item["msg"])
    if item["type"] == "value_error":  # our own words
        return reason.removeprefix("Value error, ")
    if item["type"] == "missing":
        return f"{place} is missing"
    return f"{place}: {reason}, got {item['input']!r}"


def is_path(name: str) -> bool:
    """Say whether the name of a data set is the path of a user's file or folder."""
    return name not in DATASETS and ":" not in name and ("/" in name or name.endswith(".npz"))
