"""Which files were made, on record in the control plane: a file is made once, and its loss is no new beginning.

A tenant's data has generations: each change of its key writes a file of the next one (`tenancy.rotation`). Where a
process dies between the row of a tenant and its file there is no mark yet, and the file is made at the next opening.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from sqlalchemy import bindparam, delete, insert, select
from sqlalchemy.engine import Connection

from tenancy.schema import files
from tenancy.storage import AnyDatabase

FIRST: Final = 1
_GENERATION: Final = select(files.c.generation).where(
    files.c.owner == bindparam("of"), files.c.file == bindparam("name")
)


class Registry:
    """The `files` of one control plane."""

    def __init__(self, control: AnyDatabase) -> None:
        self._control = control

    def mark(self, owner: str, file: str, generation: int = FIRST) -> FileMark:
        return FileMark(self, owner, file, generation)

    def generation(self, owner: str, file: str) -> int | None:
        """The generation of a file, or None where it was not made yet."""
        with self._control.reading() as connection:
            return read_generation(connection, owner, file)

    def make(self, owner: str, file: str, generation: int) -> None:
        """Put on record that a file was made; a later generation stays."""
        with self._control.writing() as connection:
            if (read_generation(connection, owner, file) or 0) < generation:
                write_generation(connection, owner, file, generation)


@dataclass(frozen=True, slots=True)
class FileMark:
    """The mark of one file, as `tenancy.database.Database` asks for it."""

    registry: Registry
    owner: str
    file: str
    generation: int

    def made(self) -> bool:
        return (self.registry.generation(self.owner, self.file) or 0) >= self.generation

    def make(self) -> None:
        self.registry.make(self.owner, self.file, self.generation)

    def moved(self) -> bool:
        return (self.registry.generation(self.owner, self.file) or 0) > self.generation


def read_generation(connection: Connection, owner: str, file: str) -> int | None:
    found: int | None = connection.execute(_GENERATION, {"of": owner, "name": file}).scalar_one_or_none()
    return found


def write_generation(connection: Connection, owner: str, file: str, generation: int) -> None:
    """Put a file's generation on record, in the transaction that also puts its key there."""
    connection.execute(delete(files).where(files.c.owner == owner, files.c.file == file))
    connection.execute(insert(files).values(owner=owner, file=file, generation=generation))


def named(file: str, generation: int) -> str:
    """The name of `file` in a generation: "tenant.sqlite", then "tenant.2.sqlite" and so on."""
    path = PurePath(file)
    return file if generation == FIRST else f"{path.stem}.{generation}{path.suffix}"
