"""The JSON Schema (draft 2020-12) of an audit event, made from `audit.record`.

`python -m audit.schema` writes `event.schema.json` anew; a test holds it equal. `examples` has events that fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from audit.record import VERSION, Event

FILE: Final = Path(__file__).parent / "event.schema.json"
EXAMPLES: Final = Path(__file__).parent / "examples"


def event_schema() -> dict[str, Any]:
    """What every event of this version keeps to; a field that it does not name is refused."""
    _, components = msgspec.json.schema_components([Event], ref_template="#/$defs/{name}")
    properties = components["Event"]["properties"]
    properties["v"] = {"const": VERSION}
    properties["seq"] |= {"minimum": 0}
    properties["ts"] |= {"format": "date-time", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:strongroom:audit-event:{VERSION}",
        "title": "An event of a Strongroom audit log",
        "$ref": "#/$defs/Event",
        "$defs": dict(sorted(components.items())),
    }


def text_of(schema: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2).decode() + "\n"
