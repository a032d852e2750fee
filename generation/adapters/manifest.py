"""What an adapter's folder holds: a configuration of PEFT and one file of tensors, read without running anything.

Formats: `adapter_config.json` of PEFT 0.x (LoraConfig), and safetensors: 8 bytes of little-endian length, that much
JSON (name -> dtype, shape, data_offsets), then the data. An engine would fall back to pickles where the tensors are
missing, and ignores what it does not know of the configuration; both are refused here.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from tenancy.errors import InvalidInput, TooLarge
from tenancy.names import holds_control

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
FILES: Final = (CONFIG, WEIGHTS)
MAX_CONFIG: Final = 1 << 20
"""Bytes."""
MAX_WEIGHTS: Final = 8 << 30
"""Bytes."""
MAX_RANK: Final = 1_024

_MAX_HEADER: Final = 16 << 20
_PICKLES: Final = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".dill"})
_MOST_ENTRIES: Final = 100
_TENSOR: Final = re.compile(r"[A-Za-z0-9_.]+\.([A-Za-z0-9_]+)\.lora_(?:(A|B)|embedding_(A|B))(?:\.weight)?")
_WHOLE_ONLY: Final = "merge it into the weights, or train it anew without"


@dataclass(frozen=True, slots=True)
class Description:
    """What an adapter is made for: the base model as its maker names it, the rank, and the modules that it changes."""

    base: str
    base_revision: str | None
    rank: int
    modules: tuple[str, ...]


class _Config(msgspec.Struct, frozen=True):
    """The keys of LoraConfig that matter; those behind `bias` must be as if absent: engines do not follow them."""

    peft_type: str
    base_model_name_or_path: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    r: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANK)]
    lora_alpha: Annotated[float, msgspec.Meta(gt=0)]
    target_modules: Annotated[
        list[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.]+$")]], msgspec.Meta(min_length=1)
    ]
    revision: str | None = None
    bias: str = "none"
    use_dora: bool | None = None
    use_rslora: bool | None = None
    fan_in_fan_out: bool | None = None
    modules_to_save: Any = None
    rank_pattern: Any = None
    alpha_pattern: Any = None
    layer_replication: Any = None
    trainable_token_indices: Any = None


class _Tensor(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[Annotated[int, msgspec.Meta(ge=0)]]
    data_offsets: tuple[int, int]


_EXTRAS: Final = (
    "use_dora", "use_rslora", "fan_in_fan_out", "modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication",
    "trainable_token_indices",
)  # fmt: skip


def describe(folder: Path) -> Description:
    """Read the adapter in `folder`. Raises `InvalidInput` and `TooLarge`, whose item is the file or the key."""
    _require_plain(folder)
    config = _config(_bytes(folder / CONFIG, MAX_CONFIG))
    modules = _modules(folder / WEIGHTS, config)
    return Description(config.base_model_name_or_path, config.revision, config.r, modules)


def open_plain(path: Path, most: int) -> int:
    """A descriptor of a regular file of at most `most` bytes, which is no link. Raises `InvalidInput`, `TooLarge`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InvalidInput(
            "the adapter's folder lacks this file", item=path.name, remedy="save it with PEFT's save_pretrained"
        ) from None
    except OSError as error:
        raise InvalidInput("the file cannot be read", item=path.name, remedy=str(error.strerror)) from None
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return descriptor
    os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput("not a regular file", item=path.name)
    raise TooLarge(f"the file has {found.st_size:,} bytes and may have {most:,}", item=path.name)


def _require_plain(folder: Path) -> None:
    """Regular files alone, and none that a program would run."""
    try:
        if not os.path.lexists(folder):
            raise InvalidInput("there is no such folder", item=str(folder), remedy="name the one that PEFT saved")
        if folder.is_symlink() or not folder.is_dir():
            raise InvalidInput("an adapter is a folder, and no link", item=str(folder))
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise InvalidInput("the folder cannot be read", item=str(folder), remedy=str(error.strerror)) from None
    if len(entries) > _MOST_ENTRIES:
        raise InvalidInput(f"the folder holds more than {_MOST_ENTRIES} files", item=str(folder))
    for entry in entries:
        name = _shown(entry.name)
        if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
            raise InvalidInput(
                "the folder holds a link, a folder or a special file",
                item=name,
                remedy="leave regular files alone in it",
            )
        if Path(entry.name).suffix.lower() in _PICKLES:
            raise InvalidInput(
                "the folder holds a file of a form that can run code when it is loaded",
                item=name,
                remedy=f"take it out; the weights belong in {WEIGHTS}",
            )
        if entry.name == "added_tokens.json":
            raise InvalidInput("adapters with tokens of their own are not served", item=name, remedy=_WHOLE_ONLY)


def _bytes(path: Path, most: int) -> bytes:
    with os.fdopen(open_plain(path, most), "rb") as file:
        return file.read(most)


def _config(data: bytes) -> _Config:
    try:
        config = msgspec.json.decode(data, type=_Config)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        item = where.rstrip("`") or CONFIG
        raise InvalidInput(f"{CONFIG}: {reason[:1].lower()}{reason[1:]}", item=item) from None
    except (msgspec.DecodeError, RecursionError):
        raise InvalidInput("not JSON", item=CONFIG) from None
    if config.peft_type.upper() != "LORA":
        raise InvalidInput("only LoRA adapters are served", item="peft_type", remedy="train one of peft_type LORA")
    if holds_control(config.base_model_name_or_path):
        raise InvalidInput("the base model's name holds control characters", item="base_model_name_or_path")
    if config.bias != "none":
        raise InvalidInput("an adapter that trains biases is not served", item="bias", remedy=_WHOLE_ONLY)
    for key in _EXTRAS:
        if getattr(config, key):
            raise InvalidInput(
                "engines do not follow this key: the answers would be wrong", item=key, remedy=_WHOLE_ONLY
            )
    return config


def _modules(path: Path, config: _Config) -> tuple[str, ...]:
    """The modules that the tensors belong to, every one of them declared and of the declared rank."""
    declared = {name.rpartition(".")[2] for name in config.target_modules}
    found: set[str] = set()
    for name, tensor in _header(path).items():
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise InvalidInput("not a tensor of a LoRA adapter", item=_shown(name), remedy=f"see {WEIGHTS}")
        module = match[1]
        if module not in declared:
            raise InvalidInput(f"{CONFIG} does not declare the module {module}", item=name[:200])
        side = match[2] or match[3]
        # Embeddings are stored the other way round.
        rank = tensor.shape[0 if (side == "A") else 1] if len(tensor.shape) == 2 else -1
        if rank != config.r:
            raise InvalidInput(f"the tensor is not of the declared rank {config.r}", item=name[:200])
        found.add(module)
    if not found:
        raise InvalidInput("the file holds no tensor", item=WEIGHTS)
    return tuple(sorted(found))


def _shown(name: str) -> str:
    """A name out of a folder that somebody made, as it may stand in a message."""
    return name[:200].encode("unicode_escape").decode("ascii")


def _header(path: Path) -> Mapping[str, _Tensor]:
    with os.fdopen(open_plain(path, MAX_WEIGHTS), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise InvalidInput("not a file of safetensors", item=WEIGHTS)
        raw = file.read(length)
    try:
        header = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        tensors = {name: msgspec.json.decode(entry, type=_Tensor) for name, entry in header.items()}
    except (msgspec.DecodeError, RecursionError):
        raise InvalidInput("its header is not that of safetensors", item=WEIGHTS) from None
    end = 0
    for tensor in sorted(tensors.values(), key=lambda one: one.data_offsets):
        begin, after = tensor.data_offsets
        if begin != end or after < begin:
            raise InvalidInput("its tensors overlap, or leave gaps", item=WEIGHTS)
        end = after
    if 8 + length + end != size:
        raise InvalidInput("the file is cut, or goes on behind its tensors", item=WEIGHTS, remedy="save it again")
    return tensors
