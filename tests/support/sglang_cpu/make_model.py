"""Writes a tiny random Llama with a locally trained tokenizer, and two LoRA adapters for it.

usage: make_model.py DIR      writes DIR (the model), DIR-lora-a and DIR-lora-b
The text that it generates is noise; token counts, cached-token counts, streaming, LoRA and limits are real.
"""

import json
import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shims"))

import cpu_torch  # noqa: F401
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN, LAYERS, RANK = 64, 2, 8
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model(out: Path) -> None:
    torch.manual_seed(0)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:100]
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator((p.read_text(errors="ignore")[:20000] for p in sources), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, unk_token="<unk>", bos_token="<s>", eos_token="<|im_end|>", pad_token="</s>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(out)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=4,
        pad_token_id=2,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out)


def make_adapter(out: Path, base: Path, seed: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    widths = {"q_proj": 64, "k_proj": 32, "v_proj": 32, "o_proj": 64}
    weights = {}
    for layer in range(LAYERS):
        for module, width in widths.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(RANK, HIDDEN, generator=generator) * 0.3
            weights[f"{prefix}.lora_B.weight"] = torch.randn(width, RANK, generator=generator) * 0.3
    save_file(weights, out / "adapter_model.safetensors")
    (out / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA",
                "task_type": "CAUSAL_LM",
                "base_model_name_or_path": base.name,
                "r": RANK,
                "lora_alpha": 16,
                "lora_dropout": 0.0,
                "bias": "none",
                "target_modules": sorted(widths),
                "inference_mode": True,
            }
        )
    )


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    make_model(target)
    for name, seed in (("a", 1), ("b", 2)):
        make_adapter(target.with_name(f"{target.name}-lora-{name}"), target, seed)
