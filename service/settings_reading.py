"""What a settings file and the environment say, laid over the defaults, and whether each key of it is known."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from tenancy.errors import InvalidInput

PREFIX: Final = "STRONGROOM_"
CONFIG_VARIABLE: Final = "STRONGROOM_CONFIG"
MASTER_KEY_VARIABLE: Final = "STRONGROOM_MASTER_KEY"
# Variables that Kubernetes sets in every container for a service of this name.
_KUBERNETES: Final = re.compile(r"STRONGROOM_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\w+)?)")
_PRICES: Final = (
    "leave it out; prices stand in files of their own: name their folder in prices.folder and a plan in prices.plan, "
    "see docs/operations/usage.md"
)
_FORMER: Final = {"prices.revision": _PRICES, "prices.hops": _PRICES}
"""What older settings may hold, and what to do instead."""


def overlay(values: dict[str, Any], path: Path | None, environment: Mapping[str, str], struct: type[Any]) -> None:
    """Lay `path` (or the file that STRONGROOM_CONFIG names) over `values`, then the variables. `struct` has the keys.

    Raises `InvalidInput` naming the file or variable, the key and, for an unknown one, the nearest known key.
    """
    if path is None and environment.get(CONFIG_VARIABLE):
        path = Path(environment[CONFIG_VARIABLE])
    if path is not None:
        found = _read(path)
        _check_known(found, str(path), struct)
        _overlay(values, found)
    for variable, keys, text in _variables(environment):
        found = {}
        _put(found, keys, _value(text, variable))
        _check_known(found, variable, struct)
        _overlay(values, found)


def keys_of(struct: type[Any]) -> set[str]:
    """Every key of a struct of sections with its section, as "server.port"."""
    return _keys(struct, "")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("the settings file cannot be read", item=str(path), remedy=str(error.strerror)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("the settings file is not TOML", item=str(path), remedy=str(error)) from None


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, list[str], str]]:
    for variable, text in sorted(environment.items()):
        known = variable in {CONFIG_VARIABLE, MASTER_KEY_VARIABLE}
        if variable.startswith(PREFIX) and not known and not _KUBERNETES.fullmatch(variable):
            yield variable, variable.removeprefix(PREFIX).lower().split("__"), text


def _value(text: str, variable: str) -> Any:
    """Lists and tables are TOML; anything else is text, converted to the key's type with the rest."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("the value is not a TOML list or table", item=variable, remedy=str(error)) from None


def _put(target: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        target = target.setdefault(key, {})
    target[keys[-1]] = value


def _overlay(target: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Tables are merged, everything else is replaced."""
    for key, value in found.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _overlay(target[key], value)
        else:
            target[key] = value


def _check_known(found: Mapping[str, Any], source: str, struct: type[Any]) -> None:
    known = keys_of(struct)
    for key in _paths(found, struct, ""):
        if key not in known:
            if key in _FORMER:
                raise InvalidInput(f"{key} is no setting any more", item=source, remedy=_FORMER[key])
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            remedy = f"did you mean {nearest[0]}?" if nearest else "`strongroom doctor --settings` lists the keys"
            raise InvalidInput(f"unknown setting {key}", item=source, remedy=remedy)


def _paths(found: Mapping[str, Any], struct: type[Any], prefix: str) -> Iterator[str]:
    hints = get_type_hints(struct)
    for key, value in found.items():
        inner = hints.get(key)
        nested = _struct_of(inner)
        if nested is not None and get_origin(inner) is None and isinstance(value, dict):
            yield from _paths(value, nested, f"{prefix}{key}.")
        elif nested is not None and isinstance(value, dict):
            for item in value.values():
                yield from _paths(item, nested, f"{prefix}{key}.") if isinstance(item, dict) else ()
        elif nested is not None and isinstance(value, list):
            for item in value:
                yield from _paths(item, nested, f"{prefix}{key}.") if isinstance(item, dict) else ()
        else:
            yield prefix + key


def _keys(struct: type[Any], prefix: str) -> set[str]:
    known: set[str] = set()
    for name, inner in get_type_hints(struct).items():
        nested = _struct_of(inner)
        if nested is None or get_origin(inner) is not None:
            known.add(prefix + name)
        if nested is not None:
            known |= _keys(nested, f"{prefix}{name}.")
    return known


def _struct_of(inner: Any) -> type[Any] | None:
    """The struct of a section, or of the items of a list of sections."""
    for candidate in (inner, *get_args(inner)):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None
