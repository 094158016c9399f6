"""Values become tensors: data types, layouts, operations with forward and backward side by side."""

from course_lib.tensor.dispatch import (
    Kernel,
    Observer,
    Op,
    OpCall,
    Phase,
    TensorMeta,
    apply,
    current_module,
    current_phase,
    inside_module,
    observe,
    phase,
    run_kernel,
)
from course_lib.tensor.dtypes import DType, dtype, dtype_bits, dtype_bytes, dtypes, round_to_bf16
from course_lib.tensor.gradcheck import GradcheckReport, gradcheck
from course_lib.tensor.modules import Embedding, LayerNorm, Linear, Module, Parameter, RMSNorm, Sequential
from course_lib.tensor.op_table import OPS, OpInfo
from course_lib.tensor.ops_activation import dropout, gelu, relu, sigmoid, silu, tanh
from course_lib.tensor.ops_attention import causal_mask, rope, rope_tables, scaled_dot_product_attention
from course_lib.tensor.ops_elementwise import where
from course_lib.tensor.ops_index import embedding, gather
from course_lib.tensor.ops_matmul import matmul
from course_lib.tensor.ops_nn import cross_entropy, layer_norm, log_softmax, nll_loss, rms_norm, softmax
from course_lib.tensor.ops_reduce import unbroadcast
from course_lib.tensor.ops_shape import concat
from course_lib.tensor.optimizers import SGD, AdamW
from course_lib.tensor.tensor import Tensor, no_grad
from course_lib.tensor.transformer import CausalLM, GroupedQueryAttention, SwiGLU, TransformerBlock

__all__ = [
    "OPS", "SGD", "AdamW", "CausalLM", "DType", "Embedding", "GradcheckReport", "GroupedQueryAttention",
    "Kernel", "LayerNorm", "Linear", "Module", "Observer", "Op", "OpCall", "OpInfo", "Parameter", "Phase",
    "RMSNorm", "Sequential", "SwiGLU", "Tensor", "TensorMeta", "TransformerBlock", "apply", "causal_mask",
    "concat", "cross_entropy", "current_module", "current_phase", "dropout", "dtype", "dtype_bits",
    "dtype_bytes", "dtypes", "embedding", "gather", "gelu", "gradcheck", "inside_module", "layer_norm",
    "log_softmax", "matmul", "nll_loss", "no_grad", "observe", "phase", "relu", "rms_norm", "rope",
    "rope_tables", "round_to_bf16", "run_kernel", "scaled_dot_product_attention", "sigmoid", "silu",
    "softmax", "tanh", "unbroadcast", "where",
]
