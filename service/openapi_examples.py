"""Responses by example, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from litestar.openapi.spec import Example

LIMITED: Final = [
    Example(
        id="minute",
        summary="A user's requests of a minute are used up",
        value={
            "type": "urn:strongroom:problem:limit-exceeded",
            "title": "Limit exceeded",
            "status": 429,
            "detail": "the user's limit of 60 requests a minute is reached",
            "instance": "3f0c5a1e9b7d4c2f8a6e0d1b2c3f4a5b",
            "code": "limit-exceeded",
            "item": "user",
            "remedy": "GET /v1/limits shows each limit, and when it has room again",
            "scope": "user",
            "bound": "requests_per_minute",
            "limit": 60,
            "used": 60,
            "resets": 12,
        },
    ),
    Example(
        id="shared",
        summary="A limit over all tenants, of which nothing else is told",
        value={
            "type": "urn:strongroom:problem:limit-exceeded",
            "title": "Limit exceeded",
            "status": 429,
            "detail": "the service is at a limit of its own",
            "instance": "3f0c5a1e9b7d4c2f8a6e0d1b2c3f4a5b",
            "code": "limit-exceeded",
            "item": "deployment",
            "remedy": "try again later",
            "scope": "deployment",
            "resets": 60,
        },
    ),
]

PREVIEW: Final[dict[str, Any]] = {
    "summary": "With dry_run=true",
    "value": {
        "dry_run": True,
        "admitted": False,
        "refused": {
            "scope": "tenant", "bound": "tokens_per_minute", "limit": 20_000, "used": 18_400, "need": 2_112,
        },
        "plan": {
            "model": "extractive-1", "adapter": None, "template": "default", "top_k": 8, "mode": "hybrid",
            "cache": "default", "filter": None, "rewritten": None,
        },
        "estimate": {"input_tokens": 2_048, "output_tokens": 64, "max_output_tokens": 1_024},
        "price": {
            "prices": "standard/2026-12+5f0c1a2b", "basis": "actual", "microunits": 2_176, "max_microunits": 4_096,
        },
        "room": [
            {
                "scope": "tenant", "bound": "tokens_per_minute", "limit": 20_000, "used": 18_400, "left": 1_600,
                "resets_s": 61.0,
            },
        ],
        "audit": {"seq": 4_711},
        "request_id": "3f0c5a1e9b7d4c2f8a6e0d1b2c3f4a5b",
    },
}  # fmt: skip
