"""Check a deletion certificate or an attestation of Strongroom: standalone, needs only Python and `cryptography`.

    python verify_certificate.py CERTIFICATE.json PUBLIC_KEY

PUBLIC_KEY is what `strongroom doctor --public-key` shows, base64, noted before the deletion and kept elsewhere: a key
out of the certificate itself proves nothing. Exit code 0 where every byte is as it was signed, 1 otherwise.

The signature is Ed25519 over the canonical JSON of the certificate without its field `signature`: keys sorted, no white
space, UTF-8 as it is, and no numbers but whole ones.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def canonical(certificate: dict[str, Any]) -> bytes:
    body = {name: value for name, value in certificate.items() if name != "signature"}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def check(certificate: dict[str, Any], public_key: str) -> str | None:
    """Why the certificate is not to be believed, or None where it is."""
    if certificate.get("public_key") != public_key:
        return "it was signed with another key"
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(str(certificate.get("signature")), validate=True), canonical(certificate))
    except InvalidSignature:
        return "it was changed after it was signed"
    except ValueError:
        return "the key or the signature is not what it should be"
    return None


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """One reading only: of two fields of one name each program might believe another."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field stands there twice")
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    path, public_key = arguments
    try:
        with open(path, encoding="utf-8") as file:
            certificate = json.load(file, object_pairs_hook=without_duplicates)
        reason = check(certificate, public_key.strip())
    except (OSError, ValueError, AttributeError) as error:
        reason = f"it cannot be read: {error}"
    if reason is not None:
        print(f"NOT VALID: {reason}", file=sys.stderr)
        return 1
    if "layers" in certificate:
        print(f"valid: {certificate['kind']} of {certificate['service']}, {certificate['ended']}")
        print(
            f"{certificate['verdict']}: "
            + ", ".join(f"{one['layer']} {one['verdict']}" for one in certificate["layers"])
        )
        return 0
    if certificate.get("kind") == "erasure receipt":
        what = "erased" if certificate["outcome"] == "erased" else "NOTHING WAS ERASED"
        print(f"valid: {certificate['subject']} of tenant {certificate['tenant']}: {what}, {certificate['finished']}")
    else:
        print(f"valid: tenant {certificate['tenant']} ({certificate['tenant_id']}), deleted {certificate['deleted']}")
    destroyed = certificate["destroyed"]
    counts = {name: value.get("count") for name, value in destroyed.items() if isinstance(value, dict)}
    print("destroyed: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count is not None))
    for left in destroyed.get("collections", {}).get("pending", []):
        print(f"not reached at that time: {left['physical']} at {left['engine']}")
    for hold in certificate.get("holds", []):
        print(f"legal hold: {hold['id']}, since {hold['placed']}")
    for name, reason in certificate["retained"].items():
        print(f"retained: {name}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
