"""The report as files: JSON, which is signed, and one page of Markdown that says the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from service.attest.run import digest

FOLDER: Final = "attestations"


def write(report: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write both files into `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = f"attestation-{report['ended'].replace(':', '')}-{digest(dict(report))[:8]}"
    written = folder / f"{name}.json", folder / f"{name}.md"
    for path, text in zip(written, (json.dumps(report, ensure_ascii=False, indent=1), markdown(report)), strict=True):
        path.with_suffix(path.suffix + ".new").write_text(text, encoding="utf-8")
        path.with_suffix(path.suffix + ".new").replace(path)
    return written


def markdown(report: Mapping[str, Any]) -> str:
    """One page: a table of the layers, then each claim with its counts and its control."""
    lines = [
        "# Isolation attestation",
        "",
        f"**{report['verdict']}** for {report['service']}, {report['begun']} to {report['ended']}, strongroom "
        f"{report['product']}.",
        "",
        "| layer | verdict |",
        "|---|---|",
        *(f"| {layer['layer']} | {layer['verdict']} |" for layer in report["layers"]),
        "",
        "| layer | claim | verdict | finding |",
        "|---|---|---|---|",
    ]
    for layer in report["layers"]:
        for claim in layer["claims"]:
            finding = claim["finding"] + (f". Remedy: {claim['remedy']}" if claim.get("remedy") else "")
            cells = (layer["layer"], claim["claim"], claim["verdict"], finding)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += [
        "",
        "PASS: no probe found anything, and the same probe finds what it must where it must. INCONCLUSIVE: nothing "
        "is shown. NOT BUILT: there is nothing to show. 0 of n probes bounds the rate by 3/n at 95 % confidence.",
        "",
        f"Canary tenants, made for this and removed: {', '.join(report['canaries']) or 'none'}. Signed with "
        f"{report['public_key']}; SHA-256 of what is signed: {digest(dict(report))}. Check the JSON with "
        "`python examples/verify_certificate.py REPORT.json PUBLIC_KEY`.",
        "",
    ]
    return "\n".join(lines)
