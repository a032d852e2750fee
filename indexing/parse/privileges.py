"""What a process gives up for good before it reads hostile files, with its children: new privileges, and the network.

Linux only, and of no use elsewhere. A kernel or container that knows no filters of system calls (seccomp) keeps the
network; what counts is then what the service's account may reach.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Final

_SET_SECCOMP: Final = 22
_SET_NO_NEW_PRIVS: Final = 38
_FILTER: Final = 2

_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM
_NUMBER, _ARCHITECTURE = 0, 4
"""Where a call's number and the architecture lie in what a filter sees (linux/seccomp.h)."""

_CALLS: Final = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""By machine: its name in the kernel, and the number of `socket`."""
_URING: Final = 425
"""`io_uring_setup`, by whose rings sockets can be had without `socket`."""
_OTHER_NUMBERS: Final = 0x40000000
"""From here on, x86-64 has its calls a second time."""


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def give_up() -> None:
    """No program that is started from now on gains rights (setuid), and no socket can be made. Never raises."""
    if not sys.platform.startswith("linux"):
        return
    control = ctypes.CDLL(None).prctl
    # Filters need it, so that they cannot be turned against a program with more rights.
    if control(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return
    known = _CALLS.get(os.uname().machine)
    if known is not None:
        program = _without_sockets(*known)
        control(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


def _without_sockets(architecture: int, socket: int) -> _Program:
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 3, 0, _OTHER_NUMBERS),
        (_IF_EQUAL, 2, 0, socket),
        (_IF_EQUAL, 1, 0, _URING),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    instructions = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    return _Program(len(steps), instructions)
