"""Generation with a key-value cache: one program per prompt length, then one per step, with eager's tokens."""

from __future__ import annotations

import copy

import pytest
import torch

import thunder
from tests.core.models.architectures import ARCHITECTURES, VOCAB, build
from thunder.errors import CaptureError

PROMPT = torch.arange(6).reshape(2, 3) % VOCAB + 3


def decoder(name: str) -> torch.nn.Module:
    module, _ = build(name, ARCHITECTURES[name])
    module.generation_config.pad_token_id = 0
    return module.eval()


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama", marks=pytest.mark.slow)])
def test_generate_with_a_cache(name: str) -> None:
    eager = decoder(name)
    jitted = thunder.jit(copy.deepcopy(eager))
    options = {"max_new_tokens": 6, "do_sample": False, "use_cache": True, "eos_token_id": None}
    expected = eager.generate(PROMPT, **options)
    for _ in range(2):
        assert torch.equal(jitted.generate(PROMPT, **options), expected)
    assert thunder.last_traces(jitted), "nothing was compiled"


def test_a_cache_that_grows_is_outside_the_functional_contract() -> None:
    jitted = thunder.jit(decoder("llama"), frontend="functional")
    with pytest.raises(CaptureError, match="layers in place"):
        jitted.generate(PROMPT, max_new_tokens=2, use_cache=True)


def test_generate_without_a_cache_functional() -> None:
    eager = decoder("llama")
    jitted = thunder.jit(copy.deepcopy(eager), frontend="functional")
    options = {"max_new_tokens": 4, "do_sample": False, "use_cache": False, "eos_token_id": None}
    assert torch.equal(jitted.generate(PROMPT, **options), eager.generate(PROMPT, **options))
    assert thunder.cache_misses(jitted) == 4
