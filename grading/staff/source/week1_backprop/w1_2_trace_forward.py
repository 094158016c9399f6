# %% [markdown]
# # 1.2 Trace a forward pass
#
# A small network has 26,122 parameters. One forward pass over a batch of 32 does 1,654,784 floating-point
# operations, 63.3 for each parameter. Add one layer that has **no** parameters and the count can double.
# Where does the work come from, if not from the parameters?

# %% [markdown]
# You will follow one tensor through three layers and write down, by hand and then by machine, what each
# step reads, computes and writes. At the end you can price any linear layer from its shapes alone.

# %% role="setup"
import numpy as np

from course_lib.lesson import check, predict, reveal
from course_lib.tensor import Linear, Tensor, relu
from course_lib.trace import record

# %% role="shapes"
batch = 32
widths = (64, 128, 128, 10)
element_bytes = 4

# %% [markdown]
# ## Predict
#
# Forward pass, all samples, matrix products only. A multiply and an add are two operations. Give the number
# you believe and an interval you would bet on at nine to one. A wrong number costs nothing.

# %% role="predict" id="w1-2-forward-flops" guess="800_000 100_000 5_000_000"
predict("w1-2-forward-flops", ..., low=..., high=..., unit="FLOP")

# %% [markdown]
# ## Run and count
#
# `record()` watches every operation of our own tensors while it really runs.

# %% role="measure"
rng = np.random.default_rng(0)
layers = [Linear(n, m, rng=rng) for n, m in zip(widths, widths[1:])]
x = Tensor(rng.standard_normal((batch, widths[0])), dtype="fp32")  # (B, F)
with record() as trace:
    for layer in layers[:-1]:
        x = relu(layer(x))
    x = layers[-1](x)
print(f"{sum(layer.num_parameters for layer in layers):,} parameters")

# %% role="reveal" id="w1-2-forward-flops" points=1
reveal("w1-2-forward-flops", lambda: trace.matmul_flops)

# %% [markdown]
# ## Trace
#
# Operation by operation. The matrix products hold nearly all the FLOPs; adding the bias and the ReLU hold few
# FLOPs but move bytes all the same.

# %%
trace.table()

# %% [markdown]
# ## Exercise 1: the FLOPs of a linear layer
#
# `x @ w` with `x` of shape `(batch, inputs)` and `w` of shape `(inputs, outputs)`, no bias.

# %% role="exercise" grade_id="w1-2-linear-flops" points=2
def linear_flops(batch, inputs, outputs):
    """FLOPs of x @ w; a multiply-add counts as two."""
    ### BEGIN SOLUTION
    return 2 * batch * inputs * outputs
    ### END SOLUTION

# %% role="check"
check("w1-2-linear-flops", linear_flops)

# %% [markdown]
# ## Predict: bytes
#
# The first layer's matrix product again, in fp32. Both operands are read once and the result is written once. How
# many bytes move?

# %% role="predict" id="w1-2-first-layer-bytes" guess="60_000 10_000 200_000"
predict("w1-2-first-layer-bytes", ..., low=..., high=..., unit="byte")

# %% role="reveal" id="w1-2-first-layer-bytes"
product = next(event for event in trace.events if event.op == "matmul")
reveal("w1-2-first-layer-bytes", product.work.bytes_moved)

# %% [markdown]
# ## Exercise 2: the bytes of a linear layer
#
# The same layer with elements of `element_bytes` bytes.

# %% role="exercise" grade_id="w1-2-linear-bytes" points=2
def linear_bytes(batch, inputs, outputs, element_bytes):
    """Bytes read and written by x @ w, each operand touched once."""
    ### BEGIN SOLUTION
    elements = batch * inputs + inputs * outputs + batch * outputs
    return elements * element_bytes
    ### END SOLUTION

# %% role="check"
check("w1-2-linear-bytes", linear_bytes)

# %% [markdown]
# FLOPs divided by bytes is the arithmetic intensity. It decides, in week 2, whether the layer waits for the
# multipliers or for the memory. Watch what the batch does to it.

# %%
for samples in (1, 8, 64, 512):
    flops = 2 * samples * widths[0] * widths[1]
    elements = samples * widths[0] + widths[0] * widths[1] + samples * widths[1]
    print(f"batch {samples:>3}: {flops / (elements * element_bytes):6.2f} FLOP per byte")

# %% [markdown]
# ## Exercise 3: the parameters of attention
#
# Queries, keys, values and the output projection, no biases. `num_kv_heads` may be smaller than `num_heads`:
# several query heads then share one key and value head.

# %% role="exercise" grade_id="w1-2-attention-parameters" points=2
def attention_parameters(model_size, num_heads, num_kv_heads, head_size):
    """Weights of the four projections of grouped-query attention."""
    ### BEGIN SOLUTION
    queries_and_output = 2 * model_size * num_heads * head_size
    keys_and_values = 2 * model_size * num_kv_heads * head_size
    return queries_and_output + keys_and_values
    ### END SOLUTION

# %% role="check"
check("w1-2-attention-parameters", attention_parameters)

# %% [markdown]
# ## Close
#
# - Work is counted per use, memory per element: a weight is stored once and used once for every sample.
# - The bytes of a layer are its three tensors; the batch shares the weights.
# - Grouped-query attention shrinks two of its four matrices, and (week 4) the cache that they fill.
#
# Sources: Williams, Waterman and Patterson, *Roofline*, Communications of the ACM 52(4), 2009; Ainslie and
# others, *GQA*, arXiv 2305.13245, 2023.
