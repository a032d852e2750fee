"""Which embedding model a tenant's questions and documents go through: that of its serving collection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from indexing.catalogue import Model, serving
from indexing.embed import Embedder, EmbeddingSettings, load_embedder
from indexing.model import holds_chunks, model_mismatch
from tenancy.errors import InvalidInput, ModelMismatch
from tenancy.tenant import ReadView


class Embedders:
    """The deployment's embedding models, each loaded once: the default at once, others when a tenant needs them.

    Only models that the settings list are ever loaded, whatever a contract or a database says. Safe from any number of
    threads.
    """

    def __init__(
        self, settings: EmbeddingSettings, load: Callable[[EmbeddingSettings], Embedder] = load_embedder
    ) -> None:
        self._settings = settings
        self._load = load
        self._lock = threading.Lock()
        self.default: Final = load(settings)
        self._loaded = {settings.model: self.default}

    @property
    def specs(self) -> tuple[str, ...]:
        """How the settings name the models, the default first."""
        return allowed_models(self._settings)

    def named(self, spec: str) -> Embedder:
        """The model that the settings name `spec`. Raises `InvalidInput` for others, and what loading it raises."""
        require_model_allowed(self._settings, spec)
        found = self._loaded.get(spec)
        if found is not None:
            return found
        with self._lock:
            found = self._loaded.get(spec)
            if found is None:
                found = self._load(msgspec.structs.replace(self._settings, model=spec, window=None, also=()))
                self._loaded[spec] = found
            return found

    def of(self, view: ReadView) -> Embedder:
        """The model of the tenant's serving collection; without documents the contract's, or else the default.

        Raises `ModelMismatch` where the collection was made with a model that this deployment does not have.
        """
        found = serving(view)
        if found is None:
            return self._agreed(view)
        embedder = self.serves(found.model)
        if embedder is not None:
            return embedder
        if not holds_chunks(view):
            return self._agreed(view)
        raise model_mismatch(view, found.model, self.default.fingerprint)

    def serves(self, model: Model) -> Embedder | None:
        """The embedder whose vectors are comparable with those of a model on record, if the deployment has it."""
        if model.fingerprint == self.default.fingerprint:
            return self.default
        # A database of an older version names its model otherwise: only the fingerprint tells.
        for spec in [model.spec] if model.spec in self.specs else self.specs[1:]:
            embedder = self.named(spec)
            if embedder.fingerprint == model.fingerprint:
                return embedder
        return None

    def _agreed(self, view: ReadView) -> Embedder:
        spec = view.tenant.contract.model
        if spec is None:
            return self.default
        try:
            return self.named(spec)
        except InvalidInput as error:
            raise ModelMismatch(
                "the tenant's contract names an embedding model that this deployment does not have",
                item=spec,
                remedy=error.remedy,
            ) from error


def allowed_models(settings: EmbeddingSettings) -> tuple[str, ...]:
    return tuple(dict.fromkeys((settings.model, *settings.also)))


def require_model_allowed(settings: EmbeddingSettings, spec: str) -> None:
    """Raise `InvalidInput` unless the deployment's settings list the model: a contract opens no files by path."""
    allowed = allowed_models(settings)
    if spec not in allowed:
        raise InvalidInput(
            "this deployment has no such embedding model",
            item=spec,
            remedy=f"add it to embedding.also, or use one of {', '.join(allowed)}",
        )
