"""`python PATH/offline FOLDER --key VKEY`: Python runs the folder; its modules are then found under its own name."""

import importlib
import sys
from pathlib import Path

if not __package__:
    own = Path(__file__).resolve().parent
    sys.path[0] = str(own.parent)
    sys.exit(importlib.import_module(f"{own.name}.command").main(sys.argv[1:]))

from .command import main

sys.exit(main(sys.argv[1:]))
