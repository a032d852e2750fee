"""What a server tells of itself in numbers: per-tenant signals, Prometheus series, OpenTelemetry spans, objectives.

All of it is drawn from how requests ended (`audit.ended`), never from what was asked or answered.
"""
