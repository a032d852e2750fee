"""Settings: frozen structs from `configs/default.toml`, a settings file and the environment, later ones winning.

The environment variable of a key is `STRONGROOM_SECTION__KEY` (`STRONGROOM_SERVER__PORT=8080`), of a key outside any
section `STRONGROOM_KEY`; lists and tables are written as TOML. An unknown key is an error that names it and the
nearest known one, since a misspelt limit that is silently ignored is no limit.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from admission.settings import AdmissionSettings
from cache.policy import TemplatePolicy
from indexing.embedders.port import EmbeddingSettings
from indexing.parse.settings import ParsingSettings
from metering.prices import PriceSettings
from retrieval.rerank import RerankSettings
from service.settings_reading import keys_of, overlay
from service.signal_settings import AdminSettings, SignalSettings
from tenancy.contract import HiddenText, KvSharing, Mixing, Retention, Tier
from tenancy.errors import InvalidInput
from tenancy.postgres_url import PostgresSettings
from tenancy.redis_settings import RedisSettings
from tenancy.throttle import ThrottlePolicy
from tenancy.tokens import Issuer

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the settings."""


class ServerSettings(Section, frozen=True):
    """Sizes are bytes. `trusted_proxies` are addresses whose X-Forwarded-For is believed."""

    host: str
    port: Port
    admin: AdminSettings
    max_body: Positive
    max_document: Positive
    shutdown_s: Seconds
    trusted_proxies: tuple[str, ...]
    tls_certificate: str
    tls_key: str


class RetrievalSettings(Section, frozen=True):
    """`context_tokens` bounds a prompt's sources; `threshold` is the least strength of evidence that answers."""

    top_k: Annotated[int, msgspec.Meta(ge=1, le=100)]
    mode: Literal["dense", "lexical", "hybrid"]
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)]
    context_tokens: Positive
    rerank: RerankSettings
    judge: RerankSettings


class PoolSettings(Section, frozen=True):
    """One model on `replicas` (addresses) of one trust level. Keys are in files, so that none stands in the settings.

    `dedicated_to` is the name of the one tenant that it serves; `trust` is then "dedicated" where none is given, else
    "shared". `answers_as` is the model's name in answers where it is not `model`. Of each replica: `slots` requests at
    one time, `small_slots` of them kept for prompts of less than `small_tokens` and a `guest_share` of them for
    tenants with less than their part, and `prefill_tokens` of prompts whose first token has not come. While
    others are there, who is ahead of them of late (`pace_s`) has `pace_slots` of each (0: no bound). Large prompts are
    read in pieces of `piece_tokens` (0: whole), between which each answer gets `piece_pause` tokens. Of the pool:
    `tenant_slots` requests of one tenant (0: no bound), `queue` that wait; `context_length` is the model's, in tokens
    (0: not known). `kv_isolation` is that of all pools where it is empty; it is shown again every `prove_s` seconds.

    Tenants' adapters: `max_adapters` loaded at one time on each replica (0: the pool takes none), of rank
    `max_adapter_rank` at most, for `adapter_modules`; `adapter_bases` are what their makers may call the model, where
    that is not `model`.
    """

    kind: Literal["extractive", "sglang", "openai"]
    replicas: tuple[str, ...] = ()
    model: str = ""
    revision: str = ""
    adapter: str = ""
    answers_as: str = ""
    tokenizer: str = ""
    context_length: Count = 0
    api_key_file: str = ""
    admin_key_file: str = ""
    ca_file: str = ""
    plaintext: bool = False
    trust: str = ""
    dedicated_to: str = ""
    slots: Positive = 32
    small_slots: Positive = 1
    small_tokens: Positive = 1_000
    guest_share: Annotated[float, msgspec.Meta(ge=0, le=0.75)] = 0.25
    prefill_tokens: Positive = 16_384
    pace_slots: Count = 0
    pace_s: Seconds = 30.0
    piece_tokens: Count = 0
    piece_pause: Count = 16
    tenant_slots: Count = 0
    queue: Count = 256
    first_token_s: Seconds = 30.0
    stall_s: Seconds = 20.0
    health_s: Seconds = 10.0
    failures: Positive = 3
    pause_s: Seconds = 1.0
    quarantine_s: Seconds = 600.0
    kv_isolation: Literal["", "required", "waived"] = ""
    prove_s: Seconds = 3_600.0
    max_adapters: Count = 0
    max_adapter_rank: Count = 0
    adapter_modules: tuple[str, ...] = ()
    adapter_bases: tuple[str, ...] = ()


class GenerationSettings(Section, frozen=True):
    """Which generator answers: `pools` by name, or one server with the keys that stand here, as the pool "default".

    `routing` names the pools that serve the tenants of a tier whose contract names none, best first. Tenants' adapters
    lie below the folder `adapters_dir`, which the engines see under the same path.
    """

    kind: Literal["extractive", "sglang", "openai"]
    base_url: str
    model: str
    revision: str
    adapter: str
    tokenizer: str
    context_length: Count
    api_key_file: str
    admin_key_file: str
    plaintext: bool
    max_tokens: Positive
    deadline_s: Seconds
    kv_sharing: KvSharing
    kv_isolation: Literal["required", "waived"]
    mixing: Mixing
    hidden: HiddenText
    adapters_dir: str
    templates: dict[str, str]
    pools: dict[str, PoolSettings]
    routing: dict[Tier, tuple[str, ...]]

    @property
    def adapters_path(self) -> Path | None:
        return Path(self.adapters_dir).expanduser() if self.adapters_dir else None


class VerifierSettings(Section, frozen=True):
    """`path` is a folder made by `benchmarks.train_verifier`; empty for none."""

    path: str
    timeout_s: Seconds


class CacheSettings(Section, frozen=True):
    """`quota` is in bytes, `entries` and `records` are numbers, all per tenant; `templates` are policies by name."""

    enabled: bool
    ttl_s: Seconds
    max_staleness_s: Seconds
    quota: Positive
    entries: Positive
    records: Annotated[int, msgspec.Meta(ge=1_000)]
    store: Literal["local", "redis"]
    redis: RedisSettings
    verifier: VerifierSettings
    templates: dict[str, TemplatePolicy]


class AuditSettings(Section, frozen=True):
    """`retention` is the class of the records of tenants whose contract names none, and of the system's log.
    `verify_every_h` is in hours, 0 for never.
    """

    deadline_s: Seconds
    retention: Retention
    verify_every_h: Annotated[float, msgspec.Meta(ge=0)]


class AttestSettings(Section, frozen=True):
    """`every_h` is in hours, 0 for never; `probes` and `timing` are numbers of probes; paths may begin with `~`.

    `load` clients of one canary may make the other's answers `slowdown` times as slow.
    """

    every_h: Annotated[float, msgspec.Meta(ge=0)]
    probes: Positive
    timing: Count
    load: Count
    slowdown: Annotated[float, msgspec.Meta(ge=1)]
    log_file: str
    adapter: str


class EngineSettings(Section, frozen=True):
    """A server of physical collections. `dedicated_to` is the name of the one tenant that it serves.

    Up to `exact_below` readable points (Milvus: points) a search compares them all; absent, the kind's own number.
    """

    kind: Literal["qdrant", "milvus"]
    url: str
    api_key_file: str = ""
    ca_file: str = ""
    plaintext: bool = False
    database: str = ""
    timeout_s: Seconds = 10.0
    concurrency: Positive = 16
    exact_below: Count | None = None
    dedicated_to: str = ""


class CollectionSettings(Section, frozen=True):
    """`budget` is the memory for open collections, in bytes; a question waits up to `wait_s` seconds for its part.

    `gpu_budget` is the memory on a CUDA device, in bytes. `engine` serves the tenants whose contract names none.
    """

    budget: Positive
    gpu_budget: Count
    wait_s: Annotated[float, msgspec.Meta(ge=0)]
    engine: str
    engines: dict[str, EngineSettings]


class WorkerSettings(Section, frozen=True):
    """`threads` calls run and `queue` more wait, before new ones are refused; `loading` threads write documents."""

    threads: Positive
    queue: Count
    loading: Positive


class Settings(Section, frozen=True):
    """Everything that a deployment may choose. Paths may begin with `~`."""

    data_dir: str
    master_key_file: str
    environment: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]{1,16}$")]
    server: ServerSettings
    embedding: EmbeddingSettings
    parsing: ParsingSettings
    retrieval: RetrievalSettings
    generation: GenerationSettings
    cache: CacheSettings
    audit: AuditSettings
    attest: AttestSettings
    signals: SignalSettings
    admission: AdmissionSettings
    throttle: ThrottlePolicy
    prices: PriceSettings
    collections: CollectionSettings
    workers: WorkerSettings
    database: PostgresSettings
    issuers: tuple[Issuer, ...] = ()

    @property
    def data_path(self) -> Path:
        return Path(self.data_dir).expanduser()

    @property
    def master_key_path(self) -> Path:
        return Path(self.master_key_file).expanduser()


def load_settings(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process: defaults, then `path` (or STRONGROOM_CONFIG), then the environment.

    Raises `InvalidInput` naming the file or variable, the key and, for an unknown one, the nearest known key.
    """
    values = tomllib.loads(default_text())
    overlay(values, path, os.environ if environment is None else environment, Settings)
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        raise InvalidInput(
            reason[:1].lower() + reason[1:], item=where.rstrip("`") or "settings", remedy="see configs/default.toml"
        ) from None
    known = {"default", *settings.generation.templates}
    for name in sorted(settings.cache.templates.keys() - known):
        raise InvalidInput(
            "the cache has a policy for a template that there is none of",
            item=f"cache.templates.{name}",
            remedy=f"the templates are {', '.join(sorted(known))}; see generation.templates",
        )
    return settings


def default_text() -> str:
    """The packaged defaults, a comment on every line."""
    return resources.files("configs").joinpath("default.toml").read_text(encoding="utf-8")


def known_keys() -> list[str]:
    """Every key with its section, as "server.port"."""
    return sorted(keys_of(Settings))
