"""Import before transformers or sglang: torchvision's native library does not load beside a CPU torch."""

import contextlib

import torch

for _op in ("nms", "qnms"):
    with contextlib.suppress(RuntimeError):
        torch.library.define(f"torchvision::{_op}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _without_pinned_memory(fn):
    def wrapped(*args, **kwargs):
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return fn(*args, **kwargs)

    return wrapped


# SGLang's LoRA code pins memory unconditionally, which needs an accelerator
for _name in ("tensor", "empty", "zeros", "ones", "full", "arange", "empty_like", "zeros_like", "rand", "randn"):
    setattr(torch, _name, _without_pinned_memory(getattr(torch, _name)))
torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
