"""Makes the checkpoint that verl's engine loads: a random Qwen3-MoE and a tokenizer of single characters.

verl builds its model from a folder in the format of `transformers`. Nothing is downloaded: the folder is written here,
by one rank, from a seeded generator, and removed once all ranks have loaded it.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from engine_under_test.verl_config import VerlConfig, transformer_options


@contextmanager
def checkpoint(config: VerlConfig) -> Iterator[str]:
    """Yield the path of a checkpoint that all ranks of this machine can read; all ranks must come and leave together.

    Where writing fails on rank 0, the others fail as well instead of waiting for it.
    """
    with tempfile.TemporaryDirectory(prefix="stepduel-verl-") as folder:
        shared: list[Any] = [folder]
        if dist.get_rank() == 0:
            write_checkpoint(config, Path(folder))
        dist.broadcast_object_list(shared, src=0)
        yield str(shared[0])
        dist.barrier()


def write_checkpoint(config: VerlConfig, folder: Path) -> None:
    """Write model and tokenizer to `folder`. Leaves torch's generator seeded with `config.seed`."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(config.seed)
    model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**transformer_options(config)))
    model.save_pretrained(folder)
    _tokenizer(config.vocab_size).save_pretrained(folder)


def _tokenizer(vocab_size: int) -> Any:
    """Return a tokenizer that verl can load beside the model. It never sees text: batches are made of token ids."""
    transformers: Any = importlib.import_module("transformers")
    tokenizers: Any = importlib.import_module("tokenizers")
    vocabulary = {"<pad>": 0, "<eos>": 1, **{f"<{index}>": index for index in range(2, vocab_size)}}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
