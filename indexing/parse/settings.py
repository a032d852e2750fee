"""What the settings say about the processes that parse files."""

from __future__ import annotations

from typing import Annotated

import msgspec

from indexing.parse.model import ParseLimits

_MIB = 2**20


class ParsingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`workers` files are parsed at one time, each in at most `memory_mib` of address space and `seconds`.

    `max_file_mib` bounds a file, `max_expanded_mib` what it unpacks to, `max_text_mib` the characters of one document.
    """

    workers: Annotated[int, msgspec.Meta(ge=1, le=64)]
    memory_mib: Annotated[int, msgspec.Meta(ge=512)]
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    max_file_mib: Annotated[int, msgspec.Meta(ge=1)]
    max_expanded_mib: Annotated[int, msgspec.Meta(ge=1)]
    max_text_mib: Annotated[int, msgspec.Meta(ge=1)]

    @property
    def limits(self) -> ParseLimits:
        return ParseLimits(
            max_bytes=self.max_file_mib * _MIB,
            max_expanded_bytes=self.max_expanded_mib * _MIB,
            max_characters=self.max_text_mib * _MIB,
            seconds=self.seconds,
        )

    @property
    def memory_bytes(self) -> int:
        return self.memory_mib * _MIB
