"""The tensors of a folder of safetensors files, read slice by slice."""

import json
import math
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from agentrl_jax.errors import UserError

Index = tuple[slice, ...]
FLOAT_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
MAX_READ_NUMBERS = 2**24  # numbers read at once, so that a large tensor is never on the host twice


class SafetensorsFolder:
    """The tensors of a folder's safetensors files, by name; slices are read on demand.

    Raises:
        UserError: there are no such files, one that the index names is missing, or one is
            truncated.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        for path in _safetensors_files(folder):
            try:
                with safe_open(path, framework="np") as file:
                    for name in file.keys():  # noqa: SIM118 - no dict
                        view = file.get_slice(name)
                        self._paths[name], self.shapes[name], self.dtypes[name] = (
                            path,
                            tuple(view.get_shape()),
                            view.get_dtype(),
                        )
            except (SafetensorError, OSError) as error:
                raise UserError(f"{path} is truncated or damaged: {error}") from error

    def check_tensor(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise UserError where the folder has no tensor of that name, shape and a floating-point
        type.
        """
        if name not in self.shapes:
            raise UserError(f"{self.folder} has no tensor {name}, which its config.json asks for")
        if self.shapes[name] != shape:
            raise UserError(
                f"{self.folder}: the tensor {name} has shape {list(self.shapes[name])}, "
                f"its config.json asks for {list(shape)}"
            )
        if self.dtypes[name] not in FLOAT_DTYPES:
            known = ", ".join(FLOAT_DTYPES.values())
            raise UserError(
                f"{self.folder}: the tensor {name} holds {self.dtypes[name]}: "
                f"only {known} can be read; dequantize it first"
            )

    def read_slice(self, name: str, index: Index, out: np.ndarray) -> None:
        """Fill `out` with a slice of a tensor, converted to its dtype, some rows at a time."""
        rows = range(*index[0].indices(self.shapes[name][0]))
        step = max(1, MAX_READ_NUMBERS // max(1, math.prod(out.shape[1:])))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            part = (slice(block[0], block[-1] + 1), *index[1:])
            # reopened each time: mapped pages count as memory until the file is closed
            with safe_open(self._paths[name], framework="np") as file:
                out[start : start + step] = file.get_slice(name)[part]


def _safetensors_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise UserError(f"{index} is damaged") from error
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise UserError(
                f"{folder} lacks {missing[0]}, which its index names "
                f"({len(names) - len(missing)} of {len(names)} files are there)"
            )
        return [folder / name for name in names]
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise UserError(f"{folder} holds no .safetensors files")
    return paths
