"""optimization: work gets smaller, and every step says what it costs."""

from __future__ import annotations

from course_lib.optimization.attention import merge, standard_attention, standard_attention_backward
from course_lib.optimization.attention_traffic import (
    AttentionShape,
    TileBytes,
    break_even_block_q,
    flash_flops,
    flash_hbm_bytes,
    flash_rescale_flops,
    largest_block_q,
    standard_flops,
    standard_hbm_bytes,
    tile_bytes,
    zero_fill_bytes,
)
from course_lib.optimization.backends import (
    AttentionBackend,
    FlashBackend,
    StandardBackend,
    TorchBackend,
    attention_backends,
)
from course_lib.optimization.before_after import BeforeAfter, compare_attention
from course_lib.optimization.flash import flash_attention
from course_lib.optimization.flash_backward import flash_attention_backward
from course_lib.optimization.number_formats import FLOAT_FORMATS, FloatFormat, float_format
from course_lib.optimization.quantization import QuantizedTensor, dequantize, quantize, sqnr_db
from course_lib.optimization.tiles import FlopCount, Scratchpad, blocks, scratchpad_ledger

__all__ = [
    "FLOAT_FORMATS",
    "AttentionBackend",
    "AttentionShape",
    "BeforeAfter",
    "FlashBackend",
    "FloatFormat",
    "FlopCount",
    "QuantizedTensor",
    "Scratchpad",
    "StandardBackend",
    "TileBytes",
    "TorchBackend",
    "attention_backends",
    "blocks",
    "break_even_block_q",
    "compare_attention",
    "dequantize",
    "flash_attention",
    "flash_attention_backward",
    "flash_flops",
    "flash_hbm_bytes",
    "flash_rescale_flops",
    "float_format",
    "largest_block_q",
    "merge",
    "quantize",
    "scratchpad_ledger",
    "sqnr_db",
    "standard_attention",
    "standard_attention_backward",
    "standard_flops",
    "standard_hbm_bytes",
    "tile_bytes",
    "zero_fill_bytes",
]
