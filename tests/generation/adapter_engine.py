"""A stand-in for SGLang that loads, unloads and refuses adapters."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tests.support.sglang_stand_in import Connection, StandIn, recorded_lines, recording, replay, stream


@dataclass
class Engine:
    """A stand-in that remembers what it was told to load, as SGLang does, and refuses what it does not know."""

    server: StandIn
    held: list[str] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server.usual = self.generate
        self.server.controls = {
            "/load_lora_adapter": self.load,
            "/unload_lora_adapter": self.unload,
            "/v1/models": self.models,
        }

    async def load(self, connection: Connection) -> None:
        name = connection.request.body["lora_name"]
        self.calls.append(("load", name))
        if name in self.held:
            await replay("adapter_refused")(connection)
            return
        self.held.append(name)
        await replay("adapter_loaded")(connection)

    async def unload(self, connection: Connection) -> None:
        name = connection.request.body["lora_name"]
        self.calls.append(("unload", name))
        if name in self.held:
            self.held.remove(name)
            await replay("adapter_unloaded")(connection)
        else:
            await replay("adapter_refused")(connection)

    async def models(self, connection: Connection) -> None:
        body = json.loads(recording("models")["body"])
        body["data"] += [{"id": name} for name in self.held]
        await connection.respond(200, json.dumps(body))

    async def generate(self, connection: Connection) -> None:
        model: str = connection.request.body["model"]
        adapter = model.partition(":")[2]
        if adapter and adapter not in self.held:
            await connection.respond(400, json.dumps({"object": "error", "message": "never been loaded", "code": 400}))
            return
        lines = recorded_lines("stream", connection)
        await stream(connection, [line.replace('"model":"tiny"', f'"model":"{model}"') for line in lines])
