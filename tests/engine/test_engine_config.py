"""The configuration refuses what cannot work, by field, value and what is allowed."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

import pytest

from engine_under_test.config import Fsdp2Config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"device": "tpu"}, r"device is 'tpu'; allowed: one of auto, cpu, cuda"),
        ({"mixed_precision": "fp8"}, r"mixed_precision is 'fp8'; allowed: one of none, bf16"),
        ({"context_switch": "never"}, r"context_switch is 'never'; allowed: one of when_offloaded, always"),
        ({"model_dtype": "float16"}, r"model_dtype is 'float16'; allowed: one of float32, bfloat16"),
        ({"layers": 0}, r"layers is 0; allowed: at least 1"),
        ({"lora_rank": -1}, r"lora_rank is -1; allowed: at least 0"),
        ({"slowdown_share": -0.1}, r"slowdown_share is -0.1; allowed: at least 0"),
        ({"learning_rate": 0.0}, r"learning_rate is 0.0; allowed: above 0"),
        ({"sequence_length": 1}, r"sequence_length is 1; allowed: at least 2"),
        ({"experts": 4, "experts_per_token": 5}, r"experts_per_token is 5; allowed: at most experts \(4\)"),
        ({"heads": 4, "kv_heads": 3}, r"heads is 4; allowed: a multiple of kv_heads \(3\)"),
        ({"head_dim": 7}, r"head_dim is 7; allowed: even"),
        ({"batch_size": 4, "micro_batches": 3}, r"micro_batches is 3; allowed: a divisor of batch_size \(4\)"),
        (
            {"cpu_offload_policy": True, "param_offload": True, "optimizer_offload": True},
            r"cpu_offload_policy is True; allowed: false together with param_offload and optimizer_offload",
        ),
    ],
)
def test_impossible_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fsdp2Config(**values)


def test_every_annotation_can_be_resolved() -> None:
    """Whoever builds the configuration from text checks types against these."""
    assert set(get_type_hints(Fsdp2Config)) == {field.name for field in dataclasses.fields(Fsdp2Config)}


def test_the_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Fsdp2Config().layers = 3  # type: ignore[misc]  # that it is refused is the point
