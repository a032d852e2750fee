"""Where adapters' files lie for the engines: below one folder, a folder for each tenant and in it one for each adapter.

No name there says whose it is: a tenant's folder is called by a digest of its random id, an adapter's by the adapter's
random id. Only this product writes there, and an engine reads.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from generation.adapters.manifest import CONFIG, FILES, MAX_CONFIG, MAX_WEIGHTS, WEIGHTS, open_plain
from tenancy.errors import StrongroomError, Unavailable
from tenancy.keyring import sync_directory

Progress = Callable[[int], None]
"""Told how many more bytes are copied."""

_CHUNK: Final = 1 << 20
_FOLDER_MODE: Final = 0o750
_FILE_MODE: Final = 0o640
_MOST: Final = {CONFIG: MAX_CONFIG, WEIGHTS: MAX_WEIGHTS}


def tenant_folder(tenant_id: str) -> str:
    """The name of a tenant's folder, 32 hex digits."""
    return hashlib.sha256(b"strongroom adapters\0" + tenant_id.encode()).hexdigest()[:32]


def adapter_path(root: Path, tenant_id: str, adapter_id: str) -> Path:
    return root / tenant_folder(tenant_id) / adapter_id


def copy_in(source: Path, root: Path, tenant_id: str, progress: Progress) -> tuple[Path, dict[str, str]]:
    """Copy the two files of `source` into a new folder of the tenant that no engine is told of yet; its path, and the
    SHA-256 of each file as it was written. Raises `InvalidInput`, `TooLarge`, `Unavailable` where the disk does not
    take them.
    """
    owner = root / tenant_folder(tenant_id)
    partial = owner / f".{secrets.token_hex(16)}.partial"
    try:
        for folder in (owner, partial):
            folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            folder.chmod(_FOLDER_MODE | (folder.parent.stat().st_mode & 0o2000))
        manifest = {name: _copied(source / name, partial / name, progress) for name in FILES}
        sync_directory(partial)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise Unavailable("the adapter cannot be stored", item=str(root), remedy=str(error.strerror)) from None
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return partial, manifest


def publish(partial: Path, adapter_id: str) -> None:
    """Give a folder that `copy_in` made its place."""
    try:
        partial.rename(partial.with_name(adapter_id))
        sync_directory(partial.parent)
    except OSError as error:
        raise Unavailable("the adapter cannot be stored", item=adapter_id, remedy=str(error.strerror)) from None


def intact(path: Path, manifest: Mapping[str, str]) -> bool:
    """Whether the folder holds the files of `manifest`, with these digests, and nothing else."""
    try:
        if {entry.name for entry in os.scandir(path)} != set(manifest) or not manifest.keys() <= _MOST.keys():
            return False
        for name, digest in manifest.items():
            with os.fdopen(open_plain(path / name, _MOST[name]), "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return False
    except (OSError, StrongroomError):
        return False
    return True


def keep_only(root: Path, tenant_id: str, adapter_ids: Collection[str]) -> None:
    """Remove from the tenant's folder all but the adapters `adapter_ids`. Raises `Unavailable`."""
    owner = root / tenant_folder(tenant_id)
    try:
        for entry in os.scandir(owner) if owner.is_dir() else ():
            if entry.name not in adapter_ids:
                shutil.rmtree(entry.path)
    except OSError as error:
        raise Unavailable("an adapter's files cannot be removed", item=str(root), remedy=str(error.strerror)) from None


def remove_all(root: Path, folder: str) -> None:
    """Remove a tenant's folder, by its name. Raises `Unavailable`."""
    if len(folder) != 32 or not set(folder) <= set("0123456789abcdef"):
        raise Unavailable("this is no folder of adapters", item=folder[:100])
    try:
        if (root / folder).exists():
            shutil.rmtree(root / folder)
    except OSError as error:
        raise Unavailable("a tenant's adapters cannot be removed", item=str(root), remedy=str(error.strerror)) from None


def _copied(source: Path, target: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    with os.fdopen(open_plain(source, _MOST[source.name]), "rb") as file:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as copy:
            os.fchmod(copy.fileno(), _FILE_MODE)
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                copy.write(chunk)
                progress(len(chunk))
            copy.flush()
            os.fsync(copy.fileno())
    return digest.hexdigest()
