"""Who may read the documents of one segment, and which of them are deleted.

The readable set is OR(allow sets of held labels) AND NOT OR(deny sets of held labels) AND NOT deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from pyroaring import BitMap

from indexing.postings import Mask

Effect = Literal["allow", "deny"]
Entry = tuple[int, Effect]
"""A label id and what it does."""

_OBJECT_BYTES: Final = 200


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SegmentAccess:
    """Sets of slots by label id. Never changed: each change makes another object that shares what is the same."""

    slots: int
    allow: Mapping[int, BitMap] = field(default_factory=dict)
    deny: Mapping[int, BitMap] = field(default_factory=dict)
    deleted: BitMap = field(default_factory=BitMap)

    @classmethod
    def of(cls, slots: int, entries: Iterable[tuple[int, Entry]]) -> SegmentAccess:
        """From `(slot, (label id, effect))` pairs."""
        sides: dict[Effect, dict[int, list[int]]] = {"allow": {}, "deny": {}}
        for slot, (label, effect) in entries:
            sides[effect].setdefault(label, []).append(slot)
        allow, deny = ({label: BitMap(held) for label, held in sides[side].items()} for side in ("allow", "deny"))
        return cls(slots, allow, deny)

    @property
    def nbytes(self) -> int:
        sets = (*self.allow.values(), *self.deny.values(), self.deleted)
        return sum(len(held.serialize()) + _OBJECT_BYTES for held in sets)

    def with_lists(self, lists: Mapping[int, Iterable[Entry]]) -> SegmentAccess:
        """With the access lists of some slots replaced."""
        changed = BitMap(lists)
        kept: dict[Effect, dict[int, BitMap]] = {
            "allow": {label: held - changed for label, held in self.allow.items()},
            "deny": {label: held - changed for label, held in self.deny.items()},
        }
        for slot, entries in lists.items():
            for label, effect in entries:
                kept[effect].setdefault(label, BitMap()).add(slot)
        allow, deny = ({label: held for label, held in kept[side].items() if held} for side in ("allow", "deny"))
        return SegmentAccess(self.slots, allow, deny, self.deleted)

    def without(self, slots: Iterable[int]) -> SegmentAccess:
        """With some slots deleted."""
        return SegmentAccess(self.slots, self.allow, self.deny, self.deleted | BitMap(slots))

    def live(self) -> Mask:
        """Which slots (slots,) are not deleted."""
        return ~self._mask(self.deleted)

    def readable(self, labels: frozenset[int]) -> Mask:
        """Which slots (slots,) somebody who holds `labels` may read. No labels, nothing."""
        allowed, denied = BitMap(), BitMap()
        for label in labels:
            allowed |= self.allow.get(label, _NONE)
            denied |= self.deny.get(label, _NONE)
        return self._mask(allowed - denied - self.deleted)

    def entries(self) -> dict[int, list[Entry]]:
        """The access lists of the slots that have any."""
        lists: dict[int, list[Entry]] = {}
        sides: tuple[tuple[Effect, Mapping[int, BitMap]], ...] = (("allow", self.allow), ("deny", self.deny))
        for effect, side in sides:
            for label, held in side.items():
                for slot in held:
                    lists.setdefault(slot, []).append((label, effect))
        return lists

    def _mask(self, held: BitMap) -> Mask:
        mask = np.zeros(self.slots, dtype=np.bool_)
        mask[np.asarray(held.to_array())] = True
        return mask


_NONE = BitMap()
