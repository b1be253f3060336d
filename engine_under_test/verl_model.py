"""Makes the checkpoint that verl's engine loads: a random Qwen3-MoE and a tokenizer of single characters.

verl builds its model from a folder in the format of `transformers`. Nothing is downloaded: the folder is written here,
by one rank, from a seeded generator, and removed once all ranks have loaded it.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from engine_under_test.verl_config import VerlConfig, transformer_options


@contextmanager
def checkpoint(config: VerlConfig) -> Iterator[str]:
    """Yield the path of a checkpoint, written by rank 0 for all ranks of this machine. All must come and leave."""
    with ExitStack() as stack:
        shared: list[Any] = [None]
        if dist.get_rank() == 0:
            shared = [stack.enter_context(tempfile.TemporaryDirectory(prefix="stepduel-verl-"))]
            write_checkpoint(config, Path(shared[0]))
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
