"""The isolation attestation: canary tenants probe the running service from outside, one module a layer."""
