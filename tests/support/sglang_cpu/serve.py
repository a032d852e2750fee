"""Starts a real SGLang server on a machine without a GPU.

usage: serve.py --model-path DIR --port PORT [any SGLang server flag]

The shims load at module level because SGLang spawns its scheduler and detokenizer, and each of them imports
this module again.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shims"))  # sgl_kernel: CUDA only on PyPI
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent / "shims"), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import cpu_torch  # noqa: F401  (on the path set above)

CPU_FLAGS = [
    "--device",
    "cpu",
    "--host",
    "127.0.0.1",
    "--attention-backend",
    "torch_native",
    "--cuda-graph-backend-decode=disabled",
    "--cuda-graph-backend-prefill=disabled",
    "--enable-cache-report",
    "--enable-metrics",
    "--sleep-on-idle",  # else the idle scheduler keeps a core busy
    "--mem-fraction-static",
    "0.1",
    "--max-total-tokens",
    "20000",
]

if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        run_server(prepare_server_args(CPU_FLAGS + sys.argv[1:]))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)
