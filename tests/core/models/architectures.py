"""Hugging Face architectures at tiny size, with random weights: what to build, and what to feed it.

One rule shrinks every configuration: a field named in ``TINY`` gets that value, and every dropout becomes zero. What is
left to say for an architecture is its task and the few fields that have a name or a constraint of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
import transformers
from torch import nn

VOCAB, BATCH, TIME = 64, 2, 8

TINY: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "text_vocab_size"), VOCAB),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "embedding_size", "emb_dim", "hidden_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "num_blocks"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "multi_query_group_num"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"), 64),
    **dict.fromkeys(("head_dim", "d_kv", "d_head"), 8),
    "type_vocab_size": 2,
    "image_size": 32,
    "patch_size": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "use_cache": False,
}


@dataclass(frozen=True)
class Architecture:
    """One architecture. task: the ``AutoModelFor…`` class. changes: fields of its configuration, over ``TINY``."""

    task: str
    changes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def config_of(kind: str, changes: Mapping[str, Any]) -> Any:
    """The configuration of a model type with tiny sizes and no dropout."""
    default = transformers.AutoConfig.for_model(kind)
    known = default.to_dict()
    aliases = type(default).attribute_map
    lists = {key for key, value in known.items() if isinstance(value, (list, tuple, dict))}
    tiny = {
        key: value
        for key, value in TINY.items()
        if aliases.get(key, key) in known and aliases.get(key, key) not in lists
    }
    off = {key: 0.0 for key, value in known.items() if "drop" in key and isinstance(value, float)}
    return transformers.AutoConfig.for_model(kind, **{**tiny, **off, **changes})


def build(kind: str, architecture: Architecture) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The model of an architecture and the arguments of a training step; the same at every call."""
    config = config_of(kind, architecture.changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, architecture.task).from_config(config, attn_implementation="eager")
        return model.float(), INPUTS[architecture.task](config)


def tokens(config: Any) -> torch.Tensor:
    return torch.randint(3, VOCAB, (BATCH, TIME))


def causal(config: Any) -> dict[str, torch.Tensor]:
    ids = tokens(config)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def sequence_to_sequence(config: Any) -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(config), "labels": tokens(config)}


def image(config: Any) -> dict[str, torch.Tensor]:
    size = getattr(config, "image_size", 32)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    pixels = torch.randn(BATCH, getattr(config, "num_channels", 3), height, width)
    return {"pixel_values": pixels, "labels": torch.randint(0, config.num_labels, (BATCH,))}


INPUTS: dict[str, Callable[[Any], dict[str, torch.Tensor]]] = {
    "AutoModelForCausalLM": causal,
    "AutoModelForMaskedLM": causal,
    "AutoModelForSeq2SeqLM": sequence_to_sequence,
    "AutoModelForImageClassification": image,
}

CAUSAL = "AutoModelForCausalLM"
MASKED = "AutoModelForMaskedLM"
SEQ2SEQ = "AutoModelForSeq2SeqLM"
IMAGE = "AutoModelForImageClassification"


def _table(task: str, kinds: str, **changes: Mapping[str, Any]) -> dict[str, Architecture]:
    plain = {kind: Architecture(task) for kind in kinds.split()}
    return plain | {kind.replace("__", "-"): Architecture(task, fields) for kind, fields in changes.items()}


ARCHITECTURES: dict[str, Architecture] = {
    **_table(
        CAUSAL,
        "gpt2 gpt_neox gpt_bigcode opt bloom llama mistral mixtral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 "
        "falcon stablelm olmo olmo2 olmoe cohere starcoder2 mpt granite nemotron persimmon smollm3 glm gpt_oss mamba "
        "falcon_mamba recurrent_gemma jamba biogpt xglm openai-gpt ctrl rwkv xlnet helium bitnet lfm2 "
        "modernbert-decoder",
        gpt_neo={"attention_types": [[["global", "local"], 1]]},
        gptj={"rotary_dim": 4},
        codegen={"rotary_dim": 4},
        mamba2={"num_heads": 8, "head_dim": 8, "n_groups": 1},
        qwen2_moe={"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
        qwen3_moe={"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    ),
    **_table(
        MASKED,
        "albert bert camembert convbert deberta deberta-v2 distilbert electra ernie esm fnet ibert longformer "
        "mobilebert modernbert mpnet mra nystromformer rembert roberta roformer squeezebert xlm yoso big_bird layoutlm "
        "flaubert",
        funnel={"block_sizes": [1, 1], "d_inner": 64},
    ),
    **_table(
        SEQ2SEQ,
        "bart bigbird_pegasus blenderbot fsmt led m2m_100 marian mbart mt5 mvp pegasus pegasus_x plbart prophetnet "
        "umt5 nllb-moe",
        t5={"decoder_start_token_id": 0},
        longt5={"decoder_start_token_id": 0},
        switch_transformers={"decoder_start_token_id": 0, "num_experts": 4},
    ),
    **_table(
        IMAGE,
        "beit dinov2 vit vit_msn mobilenet_v1 mobilenet_v2",
        bit={"hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8, "num_groups": 4},
        convnext={"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4},
        convnextv2={"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4},
        focalnet={"embed_dim": 16, "depths": [1, 1], "focal_levels": [1, 1], "focal_windows": [3, 3], "patch_size": 4},
        mobilevit={"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16], "patch_size": 2},
        mobilevitv2={"image_size": 64, "patch_size": 2, "width_multiplier": 0.25},
        poolformer={"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "patch_sizes": [7, 3, 3, 3]},
        regnet={"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "embedding_size": 8, "groups_width": 4},
        resnet={"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "embedding_size": 8},
        swiftformer={"image_size": 64, "depths": [1, 1, 1, 1], "embed_dims": [8, 8, 16, 16]},
        swin={"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
        swinv2={"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
        segformer={},
        pvt={"image_size": 64, "hidden_sizes": [8, 16, 16, 16], "num_attention_heads": [1, 2, 2, 2]},
    ),
}

DATA = "not known while the program is recorded"
LEAF = "it starts a new graph inside the program"

DECLINED: dict[str, str] = {
    **dict.fromkeys(("ibert", "longformer", "xlm", "flaubert", "fsmt", "led", "prophetnet"), DATA),
    **dict.fromkeys(("mra", "big_bird", "bigbird_pegasus"), LEAF),  # they make leaves, or whole modules, in forward
}
"""What the functional front end declines, with words of its error."""
