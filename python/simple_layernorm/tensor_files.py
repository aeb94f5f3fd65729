"""Reads one tensor from a user's .npy, .pt or .safetensors file, never running code from it."""

import difflib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from simple_layernorm.errors import UserError

_SUFFIXES = (".npy", ".pt", ".pth", ".safetensors")


def load_tensor(path: Path, name: str | None = None) -> Tensor:
    """The tensor `name` of the file, or its only one. On the CPU.

    Raises UserError if there is no such file, format or tensor, if a package that reads the format
    is missing, or if the file would need unpickling of anything but tensors.
    """
    if path.suffix not in _SUFFIXES:
        raise UserError(f"{path}: expected a file ending in {', '.join(_SUFFIXES)}")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    readers = {".npy": _read_npy, ".safetensors": _read_safetensors}
    return readers.get(path.suffix, _read_pt)(path, name)


def _read_npy(path: Path, name: str | None) -> Tensor:
    try:
        import numpy
    except ImportError:
        raise UserError(f"{path}: reading .npy needs numpy (pip install numpy)") from None
    if name is not None:
        raise UserError(f"{path}: a .npy file holds one tensor without a name; drop --tensor")
    try:
        array = numpy.load(path, allow_pickle=False)
        return torch.from_numpy(array)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise UserError(f"{path}: not a tensor in .npy format ({_first_line(error)})") from None


def _read_pt(path: Path, name: str | None) -> Tensor:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  zip, pickle, struct …: all of them the file's fault
        raise UserError(
            f"{path}: not a file of tensors that loads safely ({_first_line(error)})"
        ) from None
    if isinstance(content, Tensor):
        if name is not None:
            raise UserError(f"{path}: the file is one tensor without a name; drop --tensor")
        return content.detach()
    if not isinstance(content, Mapping):
        raise UserError(
            f"{path}: expected a tensor or a dict of them, but got {type(content).__name__}"
        )
    tensors: dict[str, Tensor] = {
        str(key): value for key, value in content.items() if isinstance(value, Tensor)
    }
    return tensors[_choose(path, list(tensors), name)].detach()


def _read_safetensors(path: Path, name: str | None) -> Tensor:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise UserError(
            f"{path}: reading .safetensors needs safetensors (pip install safetensors)"
        ) from None
    try:
        with safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(_choose(path, list(file.keys()), name))
            return tensor
            return tensor
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not in safetensors format ({_first_line(error)})") from None


def _choose(path: Path, names: list[str], wanted: str | None) -> str:
    if not names:
        raise UserError(f"{path}: holds no tensor")
    if wanted in names:
        return wanted
    shown = ", ".join(sorted(names)[:4]) + (f", … ({len(names)} in all)" if len(names) > 4 else "")
    if wanted is None:
        if len(names) == 1:
            return names[0]
        raise UserError(f"{path}: holds several tensors; choose one with --tensor NAME: {shown}")
    similar = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean {similar[0]}?" if similar else f"it holds {shown}"
    raise UserError(f"{path}: no tensor named {wanted}; {hint}")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
