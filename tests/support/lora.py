"""LoRA adapters as PEFT saves them, written by hand: no weights that mean anything, but files that are whole."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

HIDDEN = 8


def write_adapter(
    folder: Path,
    *,
    seed: int = 1,
    base: str = "tiny",
    rank: int = 4,
    modules: tuple[str, ...] = ("q_proj", "v_proj"),
    **config: Any,
) -> Path:
    """An adapter of one layer in the new folder `folder`; other keys of its configuration by name."""
    folder.mkdir(parents=True)
    draw = random.Random(seed)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for module in modules:
        for side, shape in (("A", [rank, HIDDEN]), ("B", [HIDDEN, rank])):
            size = 4 * shape[0] * shape[1]
            name = f"base_model.model.model.layers.0.self_attn.{module}.lora_{side}.weight"
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + size]}
            data += draw.randbytes(size)
    write_tensors(folder / "adapter_model.safetensors", header, data)
    known = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": 16,
        "bias": "none",
        "target_modules": list(modules),
    }
    (folder / "adapter_config.json").write_text(json.dumps(known | config))
    return folder


def write_tensors(path: Path, header: Any, data: bytes) -> None:
    """A file of safetensors with this header, whether or not it is true."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
